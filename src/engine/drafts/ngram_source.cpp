#include "engine/drafts/ngram_source.h"

#include <algorithm>
#include <optional>

#include "engine/drafts/suffix_automaton.h"

namespace lockstep {

namespace {
// A shorter repetition says little of what follows.
constexpr std::int32_t kLeastNgram = 2;
// Tokens of a request that are looked through: from then on the older half is forgotten.
constexpr std::size_t kMostNgramText = std::size_t{1} << 14;

class NgramSource : public DraftSource {
 public:
  void propose(const DraftPlace& place, std::vector<std::int32_t>& out) override {
    read(place.text);
    SuffixAutomaton::Match match = automaton_->repeated();
    for (const std::int32_t token : place.draft) match = automaton_->advance(match, token);
    if (match.length < kLeastNgram) return;
    // What followed there; behind the end of the text its own guesses follow.
    const std::span<const std::int32_t> text = automaton_->text();
    const auto known = static_cast<std::int64_t>(text.size()), drafted = static_cast<std::int64_t>(place.draft.size());
    for (std::int64_t i = 0; i < place.most; ++i) {
      const std::int64_t at = match.end + 1 + i;
      if (at < known) out.push_back(text[static_cast<std::size_t>(at)]);
      else if (at < known + drafted) out.push_back(place.draft[static_cast<std::size_t>(at - known)]);
      else out.push_back(out[out.size() - static_cast<std::size_t>(known + drafted - match.end - 1)]);
    }
  }

 private:
  void read(std::span<const std::int32_t> text) {
    if (!automaton_ || text.size() < begin_ + automaton_->text().size()) begin(text);
    if (text.size() - begin_ > kMostNgramText) begin(text);
    for (std::size_t i = begin_ + automaton_->text().size(); i < text.size(); ++i) automaton_->append(text[i]);
  }
  void begin(std::span<const std::int32_t> text) {
    begin_ = text.size() > kMostNgramText / 2 ? text.size() - kMostNgramText / 2 : 0;
    automaton_.emplace();
  }

  std::optional<SuffixAutomaton> automaton_;  // of the text from begin_ on
  std::size_t begin_ = 0;
};
}  // namespace

std::unique_ptr<DraftSource> make_ngram_source(DraftMaterial&) { return std::make_unique<NgramSource>(); }

}  // namespace lockstep
