// Other ranks, with what a test does before and after each exchange of theirs: it waits, looks or changes what came. Tests only.
//   HookedRanks ranks(std::make_unique<ThreadRanks>(layout), {.before = [] { std::this_thread::yield(); }});
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/exchange_counts.h"
#include "parallel/ranks.h"

namespace lockstep {

// Called on the rank's own thread. `after` is given the group, the rank and what the exchange has filled.
struct ExchangeHooks {
  std::function<void()> before = {};
  std::function<void(RankGroup group, int rank, const std::vector<View>& from)> after = {};
};

class HookedGroup final : public Communicator {
 public:
  HookedGroup(Communicator& group, const ExchangeHooks& hooks, RankGroup which, int rank) : group_(group), hooks_(hooks), which_(which), rank_(rank) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void barrier() override {
    before();
    group_.barrier();
  }
  void exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override {
    before();
    group_.exchange(stream, to, from);
    after(from);
  }
  void start(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override {
    before();
    group_.start(stream, to, from);
    begun_.push_back(from);
  }
  void finish(Stream& stream) override {
    before();
    group_.finish(stream);
    const std::vector<View> from = std::move(begun_.front());
    begun_.pop_front();
    after(from);
  }
  void forget_started() override {
    group_.forget_started();
    begun_.clear();
  }
  std::vector<std::string> gather_host(const std::string& mine) override {
    before();
    return group_.gather_host(mine);
  }

 private:
  void before() const {
    if (hooks_.before) hooks_.before();
  }
  void after(const std::vector<View>& from) const {
    if (hooks_.after) hooks_.after(which_, rank_, from);
  }
  Communicator& group_;
  const ExchangeHooks& hooks_;
  const RankGroup which_;
  const int rank_;
  std::deque<std::vector<View>> begun_;
};

class HookedRanks final : public Ranks {
 public:
  HookedRanks(std::unique_ptr<Ranks> ranks, ExchangeHooks hooks) : ranks_(std::move(ranks)), hooks_(std::move(hooks)) {
    for (int local = 0; local < ranks_->local(); ++local) {
      RankPlace place = ranks_->place(local);
      const std::pair<Communicator**, RankGroup> groups[] = {
          {&place.world, RankGroup::world},   {&place.tensor, RankGroup::tensor}, {&place.model, RankGroup::model}, {&place.data, RankGroup::data},
          {&place.stages, RankGroup::stages}, {&place.before, RankGroup::before}, {&place.after, RankGroup::after}, {&place.context, RankGroup::context}};
      for (const auto& [group, which] : groups)
        if (*group) *group = ends_.emplace_back(std::make_unique<HookedGroup>(**group, hooks_, which, place.rank)).get();
      places_.push_back(place);
    }
  }
  const RankLayout& layout() const override { return ranks_->layout(); }
  int local() const override { return ranks_->local(); }
  RankPlace place(int local) const override { return places_[static_cast<std::size_t>(local)]; }
  void run(const std::function<void(int)>& work) override { ranks_->run(work); }
  bool moves_meanwhile() const override { return ranks_->moves_meanwhile(); }
  double worked(int local) const override { return ranks_->worked(local); }
  int process() const override { return ranks_->process(); }
  std::string host() const override { return ranks_->host(); }

 private:
  const std::unique_ptr<Ranks> ranks_;
  const ExchangeHooks hooks_;
  std::vector<std::unique_ptr<HookedGroup>> ends_;
  std::vector<RankPlace> places_;
};

}  // namespace lockstep
