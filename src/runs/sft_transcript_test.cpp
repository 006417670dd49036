#include "runs/sft_transcript.h"

#include <gtest/gtest.h>

#include "runs/sft_data.h"

namespace lockstep {
namespace {

TEST(SftTranscript, ShowsTheTextAndWhatWasLearned) {
  const Tokenizer tokenizer = Tokenizer::from_folder(LOCKSTEP_SOURCE_DIR "/models/countdown-glm");
  ChatData data({std::shared_ptr<const Tokenizer>(&tokenizer, [](const Tokenizer*) {}), nullptr, {.own = 102, .turn = {102}, .unknown = {}}});
  TrainSequence sequence = train_sequence(data.completion("3 7 12=48:", "12*(7-3)"));
  const std::size_t rows = sequence.tokens.size();
  ForwardBackwardResult result;
  result.logprobs.emplace_back(rows, -0.1f);
  result.entropies.emplace_back(rows, 0.5f);
  const auto text = [](const nlohmann::ordered_json& pieces) {
    std::string all;
    for (const auto& piece : pieces) all += piece.get<std::string>();
    return all;
  };
  const auto lines =
      sft_transcripts({sequence, sequence}, {{result.logprobs[0], result.logprobs[0]}, {result.entropies[0], result.entropies[0]}}, tokenizer, 7, 1);
  ASSERT_EQ(lines.size(), 1u);
  const auto& line = lines[0];
  EXPECT_EQ(line.at("step"), 7);
  EXPECT_EQ(line.at("sequence"), 0);
  EXPECT_EQ(text(line.at("prompt")).find("3 7 12=48:") != std::string::npos, true);
  EXPECT_TRUE(text(line.at("tokens")).starts_with("12*(7-3)")) << line.dump();
  EXPECT_EQ(line.at("ids").back(), 102);
  EXPECT_EQ(line.at("prompt_ids").size() + line.at("ids").size(), rows + 1);  // every token once
  for (const char* column : {"tokens", "logprobs", "entropies", "weights"}) EXPECT_EQ(line.at(column).size(), line.at("ids").size()) << column;
  EXPECT_EQ(line.at("logprobs")[0].dump(), "-0.1");
  EXPECT_EQ(line.at("weights")[0], 1);
  EXPECT_FALSE(line.contains("cut"));

  // A mask in the middle, rows without a target, nothing trained at all.
  sequence.weights.back() = 0;
  sequence.targets.back() = -1;
  sequence.targets[rows - 2] = -1;
  const auto masked = sft_transcripts({sequence}, result, tokenizer, 1, 4)[0];
  EXPECT_EQ(masked.at("ids").size() + 1, line.at("ids").size());
  EXPECT_TRUE(masked.at("logprobs").back().is_null());
  EXPECT_EQ(masked.at("ids").back(), sequence.tokens.back());
  std::fill(sequence.weights.begin(), sequence.weights.end(), 0.0f);
  EXPECT_EQ(sft_transcripts({sequence}, result, tokenizer, 1, 4)[0].at("prompt_ids").size(), rows);
}

TEST(SftTranscript, ALongTextIsCut) {
  const Tokenizer tokenizer = Tokenizer::from_folder(LOCKSTEP_SOURCE_DIR "/models/countdown-glm");
  const std::vector<std::int32_t> tokens(10000, 5);
  const TrainSequence sequence = TrainSequence::next_token(tokens);
  ForwardBackwardResult result;
  result.logprobs.emplace_back(sequence.tokens.size(), -1.0f);
  result.entropies.emplace_back(sequence.tokens.size(), 1.0f);
  const auto line = sft_transcripts({sequence}, result, tokenizer, 1, 1)[0];
  EXPECT_EQ(line.at("ids").size(), static_cast<std::size_t>(kTranscriptTokens));
  EXPECT_EQ(line.at("cut"), tokens.size() - 1 - static_cast<std::size_t>(kTranscriptTokens));
}

}  // namespace
}  // namespace lockstep
