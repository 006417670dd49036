#include "engine/drafts/prediction_source.h"

#include <utility>
#include <vector>

#include "engine/drafts/suffix_automaton.h"

namespace lockstep {

namespace {
constexpr std::int32_t kLeastPredicted = 2;  // tokens that agree, where the answer comes back to it

class PredictionSource : public DraftSource {
 public:
  explicit PredictionSource(std::vector<std::int32_t> prediction) : prediction_(std::move(prediction)) {}

  void propose(const DraftPlace& place, std::vector<std::int32_t>& out) override {
    for (const std::int32_t token : std::exchange(prediction_, {})) automaton_.append(token);  // not of requests that wait
    const std::span<const std::int32_t> answer = place.text.subspan(static_cast<std::size_t>(place.prompt_length));
    if (answer.size() < read_) read_ = 0, reader_ = {};
    for (; read_ < answer.size(); ++read_) reader_.read(automaton_, answer[read_]);
    Reader reader = reader_;
    for (const std::int32_t token : place.draft) reader.read(automaton_, token);
    const std::span<const std::int32_t> text = automaton_.text();
    const auto size = static_cast<std::int64_t>(text.size());
    for (std::int64_t i = 0; reader.place >= 0 && i < place.most && reader.place + i < size; ++i)
      out.push_back(text[static_cast<std::size_t>(reader.place + i)]);
  }

 private:
  struct Reader {
    std::int64_t place = 0;  // of the prediction's token that would come next; -1: lost
    SuffixAutomaton::Match match;
    void read(const SuffixAutomaton& prediction, std::int32_t token) {
      const std::span<const std::int32_t> text = prediction.text();
      match = prediction.advance(match, token);
      if (place >= 0 && place < static_cast<std::int64_t>(text.size()) && text[static_cast<std::size_t>(place)] == token) ++place;
      else place = match.length >= kLeastPredicted ? match.end + 1 : -1;
    }
  };
  std::vector<std::int32_t> prediction_;  // until it is read
  SuffixAutomaton automaton_;
  std::size_t read_ = 0;  // of the answer
  Reader reader_;
};
}  // namespace

std::unique_ptr<DraftSource> make_prediction_source(DraftMaterial& material) {
  if (material.prediction.empty()) return nullptr;
  return std::make_unique<PredictionSource>(std::move(material.prediction));
}

}  // namespace lockstep
