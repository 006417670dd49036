// Of Deployments what leaves memory while nobody asks it, and comes back.
#include <algorithm>
#include <future>

#include "base/log.h"
#include "base/seconds.h"
#include "serving/deployments.h"

namespace lockstep {
namespace {
constexpr double kMostSecondsBetweenLooks = 1;
constexpr auto kAnswerEnds = std::chrono::milliseconds(20);  // who has an answer may hold the service a little longer
constexpr int kAnswerEndsTimes = 25;
constexpr double kComeAgain = 3;  // times as long as AsleepError says

bool may_leave(const ModelDeployment& one) { return one.load && one.service && one.service->bounds().open() == 0 && one.service->adapters().names().empty(); }
}  // namespace

void Deployments::set_sleep(const SleepSettings& settings) {
  const std::lock_guard lock(mutex_);
  sleep_ = settings;
  if (sleep_.idle_seconds <= 0) return;
  idling_ = std::thread([this] {
    const auto pause = std::chrono::duration<double>(std::min(sleep_.idle_seconds / 4, kMostSecondsBetweenLooks));
    std::unique_lock watching(mutex_);
    while (!wake_.wait_for(watching, pause, [this] { return stopping_; })) {
      watching.unlock();
      while (put_to_sleep(sleep_.idle_seconds)) {
      }
      watching.lock();
    }
  });
}

// One whose service nobody else knows has no request, and under the lock nobody comes to know it.
bool Deployments::put_to_sleep(double idle_seconds) const {
  const std::unique_lock one_at_a_time(falling_asleep_, std::try_to_lock);
  if (!one_at_a_time) {  // another does: there may be room then
    const std::lock_guard wait(falling_asleep_);
    return true;
  }
  LoadedDeployment gone;
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    Kept longest;
    for (const Kept& one : deployments_) {
      if (one->service && one->service->bounds().open() > 0) one->used = std::chrono::steady_clock::now();
      const bool alone = may_leave(*one) && one->service.use_count() == 1;
      // Who was told to come again finds it there, also where it is idle sooner than that.
      const double again = kComeAgain * loads_.expected_seconds(one->name);
      const double idle = idle_seconds > 0 && sleep_.hold_seconds < again ? std::max(idle_seconds, again) : idle_seconds;
      if (alone && seconds_since(one->used) >= idle && (!longest || one->used < longest->used)) longest = one;
    }
    if (!longest) return false;
    name = longest->name;
    longest->requests += longest->service->statistics().requests.load();
    longest->generated_tokens += longest->service->statistics().generated_tokens.load();
    gone = {std::move(longest->memory), std::move(longest->service)};
    longest->memory.clear();
  }
  gone.service.reset();
  gone.memory.clear();
  log_info("a deployment has left memory until it is asked for", {{"name", name}});
  return true;
}

bool Deployments::make_room() const {
  for (int i = 0; i < kAnswerEndsTimes; ++i) {
    if (put_to_sleep(0)) return true;
    {
      const std::lock_guard lock(mutex_);
      if (std::none_of(deployments_.begin(), deployments_.end(), [](const Kept& one) { return may_leave(*one); })) return false;
    }
    std::this_thread::sleep_for(kAnswerEnds);
  }
  return false;
}

AsleepError Deployments::asleep_error(const std::string& name) const {
  const double seconds = loads_.expected_seconds(name);
  std::string fault;
  {
    const std::lock_guard lock(mutex_);
    if (const Kept one = find(name)) fault = one->fault;
  }
  return {fmt::format("the model '{}' was idle and is being loaded again; ask in {:.0f} seconds{}", name, seconds,
                      fault.empty() ? "" : " (the last time it could not be loaded: " + fault + ")"),
          seconds};
}

void Deployments::load_again(const Kept& one) const {
  {
    const std::lock_guard lock(mutex_);
    if (one->service) return;
  }
  try {
    LoadedDeployment loaded = with_room([&] { return one->load(); });
    const std::lock_guard lock(mutex_);
    if (std::find(deployments_.begin(), deployments_.end(), one) == deployments_.end())
      fail(ErrorCode::not_found, "the deployment '{}' was deleted meanwhile", one->name);
    one->memory = std::move(loaded.memory);
    one->service = std::move(loaded.service);
    one->used = std::chrono::steady_clock::now();
    one->fault.clear();
    ++one->loads;
  } catch (const Error& e) {
    log_error("a deployment that is asked for could not be loaded again", {{"name", one->name}, {"reason", e.what()}});
    const std::lock_guard lock(mutex_);
    one->fault = e.message();
    throw;
  }
  log_info("a deployment is in memory again", {{"name", one->name}});
}

void Deployments::wake(const std::string& name, Woken then) const {
  Kept one;
  std::shared_ptr<GenerationService> service;
  double hold = 0;
  {
    const std::lock_guard lock(mutex_);
    one = find(name);
    if (one) one->used = std::chrono::steady_clock::now(), service = one->service;
    hold = sleep_.hold_seconds;
  }
  if (service) return then(std::move(service), nullptr);
  if (!one) return then(nullptr, std::make_exception_ptr(Error(ErrorCode::not_found, fmt::format("there is no deployment '{}'", name))));
  const auto work = [this, one] { load_again(one); };
  if (hold <= 0) {
    const AsleepError asleep = asleep_error(name);  // before the load: one that succeeds at once takes away what there was to say of the last one
    loads_.ask(name, work, {}, nullptr);
    return then(nullptr, std::make_exception_ptr(asleep));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(hold));
  loads_.ask(name, work, until, [this, one, then = std::move(then)](std::exception_ptr fault, bool late) {
    std::shared_ptr<GenerationService> service;
    {
      const std::lock_guard lock(mutex_);
      service = one->service;
    }
    if (service) return then(std::move(service), nullptr);
    if (late || !fault) return then(nullptr, std::make_exception_ptr(asleep_error(one->name)));
    try {
      std::rethrow_exception(fault);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::resource_exhausted) fault = std::make_exception_ptr(asleep_error(one->name));  // there may be room later
    } catch (...) {
    }
    then(nullptr, fault);
  });
}

std::shared_ptr<GenerationService> Deployments::awake(const std::string& name) const {
  Kept one;
  {
    const std::lock_guard lock(mutex_);
    one = find(name);
    if (one && one->service) return one->service;
  }
  if (!one) fail(ErrorCode::not_found, "there is no deployment '{}'", name);
  const auto told = std::make_shared<std::promise<std::shared_ptr<GenerationService>>>();
  loads_.ask(
      name, [this, one] { load_again(one); }, LoadQueue::Clock::time_point::max(),
      [this, one, told](std::exception_ptr fault, bool) {
        const std::lock_guard lock(mutex_);
        if (fault) told->set_exception(fault);
        else told->set_value(one->service);
      });
  const std::shared_ptr<GenerationService> service = told->get_future().get();
  if (!service) throw asleep_error(name);
  return service;
}

}  // namespace lockstep
