#include "host/training_queue.h"

#include <algorithm>

namespace lockstep {
namespace {
class PlainStep : public TrainingQueue::Step {
 public:
  PlainStep(TrainingQueue::Work work, const char* kind) : work_(std::move(work)), kind_(kind) {}
  bool run(const OnExecutor& on) override { return work_(on); }
  const char* kind() const override { return kind_; }

 private:
  TrainingQueue::Work work_;
  const char* kind_;
};
}  // namespace

void TrainingQueue::submit(const std::string& lane, const std::string& owner, Work work, const char* kind) {
  submit(lane, owner, std::make_shared<PlainStep>(std::move(work), kind));
}

void TrainingQueue::submit(const std::string& name, const std::string& owner, std::shared_ptr<Step> step) {
  const std::lock_guard lock(mutex_);
  if (!scheduled_.contains(owner))
    executor_->submit(executor_->account(WorkClass::training, owner), [self = shared_from_this(), owner] { return self->run_one(owner); });
  scheduled_.insert(owner);
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.name == name; });
  if (found != lanes_.end()) found->steps.push_back(std::move(step));
  else lanes_.push_back({name, owner, {std::move(step)}});
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

// The step of the owner's first lane, and those of others that find room beside it.
std::vector<TrainingQueue::InTurn> TrainingQueue::turn(const OnExecutor& on, const std::string& owner) {
  std::vector<InTurn> steps;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.owner == owner; });
    if (first == lanes_.end()) return steps;  // its steps ran along in the turns of others
    steps.push_back({first->name, owner, first->steps.front()});
    for (auto lane = lanes_.begin(); tokens_a_turn_ > 0 && lane != lanes_.end(); ++lane)
      if (lane != first) steps.push_back({lane->name, lane->owner, lane->steps.front()});
  }
  if (steps.size() < 2) return steps;
  const Step::Offer first = steps[0].step->offer(on);
  steps[0].tokens = first.tokens;
  std::int64_t room = tokens_a_turn_ - first.tokens;
  std::size_t kept = 1;
  for (std::size_t i = 1; i < steps.size() && first.pass && room > 0; ++i) {
    const Step::Offer offer = steps[i].step->offer(on);
    if (offer.pass != first.pass || offer.tokens > room) continue;
    room -= offer.tokens;
    steps[i].tokens = offer.tokens;
    if (i != kept) steps[kept] = std::move(steps[i]);
    ++kept;
  }
  steps.resize(kept);
  return steps;
}

bool TrainingQueue::run_one(const std::string& owner) {
  const OnExecutor on(*executor_);
  const std::vector<InTurn> steps = turn(on, owner);
  std::vector<bool> again;
  if (!steps.empty()) executor_->name_piece(steps[0].step->kind());
  if (steps.size() == 1) {
    again = {steps[0].step->run(on)};
  } else if (steps.size() > 1) {
    std::vector<Step*> others;
    std::vector<DevicePart> parts;
    for (const InTurn& one : steps) parts.push_back({executor_->account(WorkClass::training, one.owner), static_cast<double>(one.tokens)});
    for (std::size_t i = 1; i < steps.size(); ++i) others.push_back(steps[i].step.get());
    executor_->name_piece(steps[0].step->kind(), std::move(parts));
    again = steps[0].step->run_with(on, others);
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.name == steps[i].lane; });
    if (found == lanes_.end() || found->steps.front() != steps[i].step) continue;  // dropped meanwhile
    Lane lane = std::move(*found);
    lanes_.erase(found);
    if (!again[i]) lane.steps.pop_front();
    if (!lane.steps.empty()) lanes_.push_back(std::move(lane));  // behind the others
  }
  const bool more = std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.owner == owner; });
  if (!more) scheduled_.erase(owner);
  return more;
}

}  // namespace lockstep
