#include "host/training_queue.h"

#include <algorithm>

namespace lockstep {
namespace {
class PlainStep : public TrainingQueue::Step {
 public:
  explicit PlainStep(TrainingQueue::Work work) : work_(std::move(work)) {}
  bool run() override { return work_(); }

 private:
  TrainingQueue::Work work_;
};
}  // namespace

void TrainingQueue::submit(const std::string& lane, Work work) { submit(lane, std::make_shared<PlainStep>(std::move(work))); }

void TrainingQueue::submit(const std::string& name, std::shared_ptr<Step> step) {
  const std::lock_guard lock(mutex_);
  if (!scheduled_) executor_->submit(WorkPriority::training, [self = shared_from_this()] { return self->run_one(); });
  scheduled_ = true;
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.name == name; });
  if (found != lanes_.end()) found->steps.push_back(std::move(step));
  else lanes_.push_back({name, {std::move(step)}});
}

void TrainingQueue::drop(const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(lanes_, [&](const Lane& lane) { return lane.name == name; });
}

std::size_t TrainingQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const Lane& lane : lanes_) count += lane.steps.size();
  return count;
}

bool TrainingQueue::others_wait() const {
  const std::lock_guard lock(mutex_);
  return lanes_.size() > 1;
}

// The first lane's step, and those of others that find room beside it.
std::vector<std::shared_ptr<TrainingQueue::Step>> TrainingQueue::turn(std::vector<std::string>& names) {
  std::vector<std::shared_ptr<Step>> steps;
  {
    const std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_) {
      names.push_back(lane.name);
      steps.push_back(lane.steps.front());
      if (tokens_a_turn_ == 0) break;
    }
  }
  if (steps.size() < 2) return steps;
  const Step::Offer first = steps[0]->offer();
  std::int64_t room = tokens_a_turn_ - first.tokens;
  std::size_t kept = 1;
  for (std::size_t i = 1; i < steps.size() && first.pass && room > 0; ++i) {
    const Step::Offer offer = steps[i]->offer();
    if (offer.pass != first.pass || offer.tokens > room) continue;
    room -= offer.tokens;
    steps[kept] = steps[i];
    names[kept++] = names[i];
  }
  steps.resize(kept);
  names.resize(kept);
  return steps;
}

bool TrainingQueue::run_one() {
  std::vector<std::string> names;
  const std::vector<std::shared_ptr<Step>> steps = turn(names);
  std::vector<bool> again;
  if (steps.size() == 1) {
    again = {steps[0]->run()};
  } else if (steps.size() > 1) {
    std::vector<Step*> others;
    for (std::size_t i = 1; i < steps.size(); ++i) others.push_back(steps[i].get());
    again = steps[0]->run_with(others);
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.name == names[i]; });
    if (found == lanes_.end() || found->steps.front() != steps[i]) continue;  // dropped meanwhile
    Lane lane = std::move(*found);
    lanes_.erase(found);
    if (!again[i]) lane.steps.pop_front();
    if (!lane.steps.empty()) lanes_.push_back(std::move(lane));  // behind the others
  }
  return scheduled_ = !lanes_.empty();
}

}  // namespace lockstep
