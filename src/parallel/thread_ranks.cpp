#include "parallel/thread_ranks.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "observe/trace.h"
#include "parallel/exchange_counts.h"

namespace lockstep {

namespace {

// A barrier in two phases for the ranks of one group: all have arrived (no rank reads another's buffers before), and all have read
// (no rank's buffers are freed before). Only the first phase can be cancelled: a rank that passed it always completes the second.
class Meeting {
 public:
  explicit Meeting(int size) : offers_(static_cast<std::size_t>(size)), size_(size) {}

  // `wait` is given what waits, and calls it.
  template <class W, class F>
  void meet(int rank, const void* offer, const W& wait, const F& look) {
    {
      std::unique_lock lock(mutex_);
      if (broken_) refuse();
      offers_[static_cast<std::size_t>(rank)] = offer;
      const std::uint64_t generation = generation_;
      if (++arrived_ == size_) {
        arrived_ = 0;
        looking_ = size_;
        ++generation_;
        changed_.notify_all();
      } else {
        const TraceSpan span("waiting", "waiting for ranks");
        wait([&] { changed_.wait(lock, [&] { return generation_ != generation || broken_; }); });
        if (generation_ == generation) refuse();
      }
    }
    struct Leave {
      Meeting& meeting;
      const W& wait;
      ~Leave() {
        std::unique_lock lock(meeting.mutex_);
        if (--meeting.looking_ == 0) {
          meeting.changed_.notify_all();
        } else {
          const TraceSpan span("waiting", "waiting for ranks");
          wait([&] { meeting.changed_.wait(lock, [&] { return meeting.looking_ == 0; }); });
        }
      }
    } leave{*this, wait};
    look(offers_);
  }

  void break_off() {
    std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }
  // No rank is inside.
  void mend() {
    std::lock_guard lock(mutex_);
    broken_ = false;
    arrived_ = 0;
  }

 private:
  [[noreturn]] static void refuse() { fail(ErrorCode::cancelled, "another rank failed"); }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> offers_;  // written before all have come, read until all have looked
  int size_, arrived_ = 0, looking_ = 0;
  std::uint64_t generation_ = 0;
  bool broken_ = false;
};

class ThreadCommunicator final : public CountingCommunicator {
  auto clock(Collective what) {
    return [this, what](const auto& wait) { waiting(what, wait); };
  }

 public:
  ThreadCommunicator(std::shared_ptr<Meeting> meeting, int rank, int size) : meeting_(std::move(meeting)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override {
    if (size_ > 1) meeting_->meet(rank_, nullptr, clock(Collective::records), [](const auto&) {});
  }

  void exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override {
    if (to.size() != static_cast<std::size_t>(size_) || from.size() != to.size())
      fail(ErrorCode::internal, "an exchange of {} ranks has {} and {} views", size_, to.size(), from.size());
    const TraceSpan span("exchange", kCollectiveNames[static_cast<std::size_t>(CollectiveScope::current())].data());
    count_call();
    stream.synchronize();  // so that the others read finished data
    const Moving mover = moving();
    const auto look = [&](const std::vector<const void*>& offers) {
      for (int r = 0; r < size_; ++r) {
        const View& target = from[static_cast<std::size_t>(r)];
        const View& source = (*static_cast<const std::vector<View>*>(offers[static_cast<std::size_t>(r)]))[static_cast<std::size_t>(rank_)];
        if (target.size() != source.size() || (target.size() > 0 && (target.rows != source.rows || target.dtype != source.dtype)))
          fail(ErrorCode::internal, "rank {} expects {} x {} of rank {}, which sends {} x {}", rank_, target.rows, target.cols, r, source.rows, source.cols);
        if (target.size() == 0 || target.address == source.address) continue;
        stream.copy(target, source);
        if (r != rank_) count_bytes(target.size() * target.element_bytes, target.size() * target.element_bytes);
      }
      stream.synchronize();
    };
    if (size_ > 1) meeting_->meet(rank_, &to, clock(CollectiveScope::current()), look);
    else look({&to});
  }

  std::vector<std::string> gather_host(const std::string& mine) override {
    std::vector<std::string> all;
    if (size_ == 1) return {mine};
    meeting_->meet(rank_, &mine, clock(Collective::records), [&](const std::vector<const void*>& offers) {
      for (const void* offer : offers) all.push_back(*static_cast<const std::string*>(offer));
    });
    return all;
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_, size_;
};

}  // namespace

struct ThreadRanks::State {
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(int)>* work = nullptr;
  std::uint64_t generation = 0;
  int running = 0;
  bool stop = false;
  std::exception_ptr error;
  std::vector<std::shared_ptr<Meeting>> meetings;
  std::vector<std::thread> threads;
  std::vector<double> worked;  // by rank

  void perform(const std::function<void(int)>& job, int rank) {
    const WorkedSeconds clock(worked[static_cast<std::size_t>(rank)]);
    try {
      job(rank);
    } catch (...) {
      {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
      for (const auto& meeting : meetings) meeting->break_off();
    }
  }
  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
  void loop(int rank) {
    std::uint64_t seen = 0;
    for (;;) {
      const std::function<void(int)>* job;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
        job = work;
      }
      perform(*job, rank);
      std::lock_guard lock(mutex);
      if (--running == 0) done.notify_all();
    }
  }
};

ThreadRanks::ThreadRanks(const RankLayout& layout) : layout_(layout), state_(std::make_unique<State>()), ends_(static_cast<std::size_t>(layout.size())) {
  state_->worked.resize(ends_.size());
  // Groups by (kind, colour), as in MPI_Comm_split; ranks are numbered in ascending order.
  const auto join = [&](std::unique_ptr<Communicator> Ends::*end, const std::function<int(int)>& colour) {
    std::map<int, std::vector<int>> groups;
    for (int rank = 0; rank < size(); ++rank) groups[colour(rank)].push_back(rank);
    for (const auto& [name, members] : groups) {
      const auto count = static_cast<int>(members.size());
      state_->meetings.push_back(std::make_shared<Meeting>(count));
      for (int i = 0; i < count; ++i)
        ends_[static_cast<std::size_t>(members[static_cast<std::size_t>(i)])].*end = std::make_unique<ThreadCommunicator>(state_->meetings.back(), i, count);
    }
  };
  join(&Ends::world, [](int) { return 0; });
  join(&Ends::tensor, [&](int rank) { return rank / layout_.tp; });
  join(&Ends::model, [&](int rank) { return rank / layout_.model(); });
  join(&Ends::data, [&](int rank) { return layout_.replica_of(rank); });
  join(&Ends::stages, [&](int rank) { return layout_.peers_of(rank); });
  join(&Ends::context, [&](int rank) { return layout_.fellows_of(rank); });
  for (const auto& [rank, next] : layout_.links()) {
    state_->meetings.push_back(std::make_shared<Meeting>(2));
    ends_[static_cast<std::size_t>(rank)].after = std::make_unique<ThreadCommunicator>(state_->meetings.back(), 0, 2);
    ends_[static_cast<std::size_t>(next)].before = std::make_unique<ThreadCommunicator>(state_->meetings.back(), 1, 2);
  }
  try {
    for (int rank = 1; rank < size(); ++rank) state_->threads.emplace_back([this, rank] { state_->loop(rank); });
  } catch (const std::system_error&) {  // no memory for one more stack, or too many threads
    const std::size_t begun = state_->threads.size();
    state_->end();
    fail(ErrorCode::resource_exhausted, "{} ranks need {} threads, the system gave {} (memory for their stacks, or a limit of threads)", size(), size() - 1,
         begun);
  }
}

ThreadRanks::~ThreadRanks() { state_->end(); }

RankPlace ThreadRanks::place(int rank) const {
  if (size() == 1) return {};
  const Ends& ends = ends_[static_cast<std::size_t>(rank)];
  return {
      layout_,           rank, ends.world.get(), ends.tensor.get(), ends.model.get(), ends.data.get(), ends.stages.get(), ends.before.get(), ends.after.get(),
      ends.context.get()};
}

double ThreadRanks::worked(int rank) const { return state_->worked[static_cast<std::size_t>(rank)]; }

void ThreadRanks::run(const std::function<void(int)>& work) {
  if (size() == 1) return work(0);
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.work = &work;
    s.error = nullptr;
    s.running = size() - 1;
    ++s.generation;
  }
  s.wake.notify_all();
  s.perform(work, 0);
  std::exception_ptr error;
  {
    std::unique_lock lock(s.mutex);
    s.done.wait(lock, [&] { return s.running == 0; });
    error = std::exchange(s.error, nullptr);
  }
  if (!error) return;
  for (const auto& meeting : s.meetings) meeting->mend();
  std::rethrow_exception(error);
}

}  // namespace lockstep
