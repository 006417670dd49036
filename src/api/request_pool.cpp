#include "api/request_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "api/body_budget.h"
#include "base/client_work.h"
#include "base/log.h"

namespace lockstep {

struct RequestPool::Task {
  ApiRequest request;
  std::shared_ptr<Responder> out;
  Work work;
  Failed failed;
  const std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);

  void run() {
    const ClientWork scope(gone, request.lease);
    try {
      ClientWork::check();
      work(request);
    } catch (const std::exception& e) {
      try {
        // Before the answer: a client that is told tries again, and must find the memory free.
        std::string().swap(request.body);
        if (request.lease) request.lease->settle(0);
        out->send(failed(e));
      } catch (const std::exception& again) {  // no memory, say
        log_error("an answer could not be made", {{"reason", again.what()}});
      }
    }
    if (request.lease) request.lease->return_freed();
  }
};

struct RequestPool::State {
  explicit State(const Options& wanted) : options(wanted) {}
  const Options options;
  std::mutex mutex;
  std::condition_variable changed;
  struct Owner {
    std::deque<std::shared_ptr<Task>> waiting;
    std::size_t running = 0;
  };
  std::map<std::string, Owner> owners;  // those with requests that wait or run
  std::deque<std::string> turns;        // owners with requests that wait, each once
  std::unordered_set<std::shared_ptr<Task>> running;
  std::size_t waiting = 0, idle = 0;
  std::vector<std::thread> threads;
  bool stopping = false;

  // The next request of an owner with fewer than most_of_owner running; null: none. Call with the lock held.
  std::shared_ptr<Task> next() {
    for (std::size_t i = 0; i < turns.size(); ++i) {
      Owner& owner = owners.at(turns.front());
      std::string name = std::move(turns.front());
      turns.pop_front();
      if (owner.waiting.empty()) {  // they have gone
        if (owner.running == 0) owners.erase(name);
        --i;
        continue;
      }
      if (owner.running >= options.most_of_owner) {
        turns.push_back(std::move(name));
        continue;
      }
      std::shared_ptr<Task> task = std::move(owner.waiting.front());
      owner.waiting.pop_front();
      ++owner.running;
      --waiting;
      if (!owner.waiting.empty()) turns.push_back(std::move(name));
      return task;
    }
    return nullptr;
  }
  void ended(const std::string& name) {
    const auto owner = owners.find(name);
    if (owner == owners.end()) return;  // all has been dropped
    if (--owner->second.running == 0 && owner->second.waiting.empty()) {
      std::erase(turns, name);
      owners.erase(owner);
    }
  }
  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      std::shared_ptr<Task> task;
      ++idle;
      changed.wait(lock, [&] { return stopping || (task = next()); });
      --idle;
      if (stopping) return;
      running.insert(task);
      lock.unlock();
      task->run();
      const std::string owner = task->request.owner;
      lock.lock();
      running.erase(task);
      ended(owner);
      if (waiting > 0) changed.notify_one();  // its owner may run another
      lock.unlock();
      task.reset();  // frees the body, without the lock
      lock.lock();
    }
  }
  // Drops or cancels a task whose client has gone.
  void forget(const std::shared_ptr<Task>& task) {
    *task->gone = true;
    std::shared_ptr<Task> dropped;  // destroyed after the lock is released
    const std::lock_guard lock(mutex);
    const auto owner = owners.find(task->request.owner);
    if (owner == owners.end()) return;
    auto& queue = owner->second.waiting;
    for (auto at = queue.begin(); at != queue.end(); ++at)
      if (*at == task) {
        dropped = std::move(*at);
        queue.erase(at);
        --waiting;
        break;
      }
  }
};

RequestPool::RequestPool(const Options& options) : state_(std::make_shared<State>(options)) {}

RequestPool::~RequestPool() {
  std::vector<std::shared_ptr<Task>> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    for (auto& [name, owner] : state_->owners)
      for (auto& task : owner.waiting) dropped.push_back(std::move(task));
    state_->owners.clear();
    state_->turns.clear();
    state_->waiting = 0;
    for (const auto& task : state_->running) *task->gone = true;
  }
  dropped.clear();
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void RequestPool::post(ApiRequest request, const std::shared_ptr<Responder>& out, Work work, Failed failed) {
  auto task = std::make_shared<Task>();
  task->request = std::move(request);
  task->out = out;
  task->work = std::move(work);
  task->failed = std::move(failed);
  // Set before the work begins, since the work may set a callback of its own instead.
  out->on_abandoned([weak = std::weak_ptr(task), state = std::weak_ptr(state_)] {
    const auto one = weak.lock();
    const auto alive = state.lock();
    if (one && alive) alive->forget(one);
  });
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->waiting >= state_->options.most_waiting)
      fail(ErrorCode::resource_exhausted, "{} requests are waiting to be read, and no more may; try again later", state_->waiting);
    State::Owner& owner = state_->owners[task->request.owner];
    if (owner.waiting.empty() && std::find(state_->turns.begin(), state_->turns.end(), task->request.owner) == state_->turns.end())
      state_->turns.push_back(task->request.owner);
    owner.waiting.push_back(task);
    ++state_->waiting;
    if (state_->idle < state_->waiting && state_->threads.size() < state_->options.threads)
      state_->threads.emplace_back([state = state_.get()] { state->work(); });
  }
  state_->changed.notify_one();
}

}  // namespace lockstep
