// The shipped model's tokenizer: its published ids, and the same ids as Hugging Face on a corpus.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/tokenizer/tokenizer.h"

namespace lockstep {
namespace {
using Ids = std::vector<std::int32_t>;

const Tokenizer& countdown() {
  static const Tokenizer tokenizer = Tokenizer::from_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/tokenizer.json");
  return tokenizer;
}

TEST(CountdownTokenizer, AgreesWithHuggingFace) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/text/fixtures/countdown.json");
  const auto fixture = nlohmann::json::parse(file);
  ASSERT_GE(fixture["cases"].size(), 60u);
  for (const auto& expected : fixture["cases"]) {
    const auto text = expected["text"].get<std::string>();
    const auto ids = expected["ids"].get<Ids>();
    EXPECT_EQ(countdown().encode(text, true), ids) << text;
    EXPECT_EQ(countdown().decode(ids, true), expected["decoded_skip"].get<std::string>()) << text;
    EXPECT_EQ(countdown().decode(ids, false), text);
  }
}

TEST(CountdownTokenizer, PublishedIds) {
  EXPECT_EQ(countdown().vocab_size(), 512);
  for (std::int32_t n = 0; n <= 100; ++n) EXPECT_EQ(countdown().encode(std::to_string(n), true), Ids{n});
  EXPECT_EQ(countdown().token_id("<|bos|>"), 101);
  EXPECT_EQ(countdown().token_id("<|eos|>"), 102);
  EXPECT_EQ(countdown().token_id("<|pad|>"), 103);
  EXPECT_EQ(countdown().token_id("<|reserved_0|>"), 504);
  EXPECT_EQ(countdown().encode("123", true), (Ids{12, 3}));
  const std::string signs = "+-*/()=,: \n";
  for (const char c : signs) EXPECT_EQ(countdown().encode(std::string(1, c), true).size(), 1u) << c;
}

// Any two numbers with any sign between them are three tokens: the task's texts are one token a symbol.
TEST(CountdownTokenizer, OneTokenASymbol) {
  for (std::int32_t a = 0; a <= 100; ++a) {
    for (std::int32_t b = 0; b <= 100; b += 7) {
      for (const char sign : std::string("+-*/=,: ()")) {
        const Ids ids = countdown().encode(std::to_string(a) + sign + std::to_string(b), true);
        ASSERT_EQ(ids.size(), 3u) << a << sign << b;
        EXPECT_EQ(ids[0], a);
        EXPECT_EQ(ids[2], b);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
