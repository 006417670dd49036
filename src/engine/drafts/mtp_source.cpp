#include "engine/drafts/mtp_source.h"

#include <algorithm>

namespace lockstep {

namespace {
class MtpSource : public DraftSource {
 public:
  explicit MtpSource(const std::vector<std::int32_t>& says) : says_(says) {}
  // It knows what follows its own words alone.
  void propose(const DraftPlace& place, std::vector<std::int32_t>& out) override {
    if (place.draft.size() >= says_.size() || !std::equal(place.draft.begin(), place.draft.end(), says_.begin())) return;
    const auto from = says_.begin() + static_cast<std::ptrdiff_t>(place.draft.size());
    out.insert(out.end(), from, from + std::min<std::int64_t>(place.most, says_.end() - from));
  }

 private:
  const std::vector<std::int32_t>& says_;
};
}  // namespace

std::unique_ptr<DraftSource> make_mtp_source(DraftMaterial& material) {
  return material.layer_says ? std::make_unique<MtpSource>(*material.layer_says) : nullptr;
}

}  // namespace lockstep
