#include "engine/drafts/scripted_source.h"

namespace lockstep {

namespace {
class ScriptedSource : public DraftSource {
 public:
  explicit ScriptedSource(DraftScript script) : script_(std::move(script)) {}
  void propose(const DraftPlace& place, std::vector<std::int32_t>& out) override {
    if (place.draft.empty()) script_(place.text, place.most, out);
  }

 private:
  DraftScript script_;
};
}  // namespace

std::unique_ptr<DraftSource> make_scripted_source(DraftMaterial& material) {
  return material.script ? std::make_unique<ScriptedSource>(std::move(material.script)) : nullptr;
}

}  // namespace lockstep
