// What a trainer whose ranks hold shares puts together when it is asked for the whole: of the newest version requested, once for all who ask for it. It
// is there as long as one of them has it. With ranks of other owners, as processes are, it is kept as long as it is the newest: all owners put it together,
// or none does.
//   NewestWhole<WeightSet> whole; std::shared_ptr<const WeightSet> weights = whole.of(version, ranks.all_here(), [&] { return put_together(version); });
// One thread.
#pragma once
#include <cstdint>
#include <memory>

namespace lockstep {

// `Whole` has a `version`.
template <class Whole>
class NewestWhole {
 public:
  template <class Make>
  std::shared_ptr<const Whole> of(std::uint64_t version, bool one_owner, const Make& make) {
    if (std::shared_ptr<const Whole> made = made_.lock(); made && made->version == version) return made;
    std::shared_ptr<const Whole> whole = make();
    made_ = whole;
    if (!one_owner) kept_ = whole;
    return whole;
  }
  void forget() { made_.reset(), kept_.reset(); }

 private:
  std::weak_ptr<const Whole> made_;
  std::shared_ptr<const Whole> kept_;
};

}  // namespace lockstep
