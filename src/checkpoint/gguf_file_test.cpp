#include "checkpoint/gguf_file.h"

#include <gtest/gtest.h>

#include "checkpoint/gguf_test_tools.h"
#include "checkpoint/safetensors_test_tools.h"

namespace lockstep {
namespace {

GgufBytes small() {
  GgufBytes file;
  file.text("general.architecture", "llama");
  file.u32("llama.block_count", 2);
  file.texts("words", {"a", "", "\xC3\xA9"});
  file.tensor("one", {2, 3}, 0, raw_floats({1, 2, 3, 4, 5, 6}));
  file.tensor("two", {4}, 30, std::string("\x80\x3f\x00\x40\x40\xc0\x00\x00", 8));
  return file;
}

GgufFile opened(const std::string& bytes) { return GgufFile::from_bytes(bytes, "m.gguf"); }
void refused(ErrorCode code, const std::vector<std::string>& parts, const std::string& bytes) {
  std::vector<std::string> all = parts;
  all.emplace_back("'m.gguf'");
  expect_error(code, all, [&] { opened(bytes); });
}

TEST(GgufFile, ReadsKeysAndTensors) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBytes bytes = small();
    bytes.version = version;
    const GgufFile file = opened(bytes.bytes());
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.text("general.architecture"), "llama");
    EXPECT_EQ(file.integer("llama.block_count", 1, 9), 2);
    EXPECT_EQ(file.texts("words"), (std::vector<std::string>{"a", "", "\xC3\xA9"}));
    EXPECT_FALSE(file.integer_if("llama.none", 0, 9).has_value());
    ASSERT_NE(file.find("one"), nullptr);
    EXPECT_EQ(file.find("one")->shape, (std::vector<std::int64_t>{2, 3}));
    std::vector<float> values(6), part(2), two(4);
    file.read(*file.find("one"), values);
    file.read(*file.find("one"), part, 3);
    file.read(*file.find("two"), two);
    EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(part, (std::vector<float>{4, 5}));
    EXPECT_EQ(two, (std::vector<float>{1, 2, -3, 0}));
  }
}

TEST(GgufFile, EveryTruncationIsOneError) {
  const std::string whole = small().bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) try {
      opened(whole.substr(0, length));
      ADD_FAILURE() << length << " bytes of " << whole.size() << " are read";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt_file) << e.what();
    }
}

TEST(GgufFile, RefusesWhatIsNoGguf) {
  refused(ErrorCode::corrupt_file, {"does not begin with GGUF"}, "PK\3\4 and so on, long enough");
  GgufBytes bytes = small();
  for (const auto& [version, part] : {std::pair{1u, "version is 1, allowed are 2 and 3"}, {4u, "version is 4"}, {0x03000000u, "big-endian"}}) {
    bytes.version = version;
    refused(ErrorCode::unsupported, {part}, bytes.bytes());
  }
}

TEST(GgufFile, HugeCountsAllocateNothing) {
  std::string whole = small().bytes();
  for (const std::size_t at : {8, 16}) {  // tensors, keys
    std::string bytes = whole;
    bytes.replace(at, 8, raw_bytes(std::uint64_t{1} << 60));
    refused(ErrorCode::corrupt_file, {"1152921504606846976"}, bytes);
  }
  GgufBytes list;
  list.key("words", 9, raw_bytes(std::uint32_t{8}) + raw_bytes(std::uint64_t{1} << 61));
  refused(ErrorCode::corrupt_file, {"'words'", "2305843009213693952"}, list.bytes());
  GgufBytes text;
  text.key("word", 8, raw_bytes(~std::uint64_t{0}));
  refused(ErrorCode::corrupt_file, {"truncated", "18446744073709551615"}, text.bytes());
  GgufBytes wide;
  wide.tensor("wide", {std::uint64_t{1} << 40, std::uint64_t{1} << 40}, 0, "");
  refused(ErrorCode::corrupt_file, {"'wide'", "more elements than 63 bits count"}, wide.bytes());
  GgufBytes long_one;
  long_one.tensor("long", {std::uint64_t{1} << 40}, 0, "1234");
  refused(ErrorCode::corrupt_file, {"truncated", "'long'"}, long_one.bytes());
}

TEST(GgufFile, TensorsMayNotOverlap) {
  GgufBytes bytes = small();
  bytes.tensor_at("three", {8}, 0, 0);
  refused(ErrorCode::corrupt_file, {"inside tensor", "'one'", "'three'"}, bytes.bytes());
  GgufBytes beyond = small();
  beyond.tensor_at("far", {8}, 0, ~std::uint64_t{31});
  refused(ErrorCode::corrupt_file, {"truncated", "'far'"}, beyond.bytes());
  GgufBytes askew = small();
  askew.tensor_at("askew", {1}, 0, 7);
  refused(ErrorCode::corrupt_file, {"'askew'", "begins at byte 7", "multiples of 32"}, askew.bytes());
}

TEST(GgufFile, NamesWhatItDoesNotRead) {
  GgufBytes bytes = small();
  bytes.tensor("coded", {256}, 18, std::string(98, '\0'));
  refused(ErrorCode::unsupported, {"'coded'", "IQ3_XXS", "Q4_K, Q5_K, Q6_K"}, bytes.bytes());
  GgufBytes unknown = small();
  unknown.tensor("odd", {256}, 77, "");
  refused(ErrorCode::unsupported, {"'odd'", "the type 77"}, unknown.bytes());
  GgufBytes parts = small();
  parts.key("split.count", 2, raw_bytes(std::uint16_t{3}));
  refused(ErrorCode::unsupported, {"one of 3 parts", "llama-gguf-split --merge"}, parts.bytes());
  GgufBytes cut = small();
  cut.tensor("cut", {48}, 8, std::string(51, '\0'));
  refused(ErrorCode::corrupt_file, {"'cut'", "no whole blocks of 32"}, cut.bytes());
  GgufBytes nested = small();
  nested.key("nested", 9, raw_bytes(std::uint32_t{9}) + raw_bytes(std::uint64_t{0}));
  refused(ErrorCode::unsupported, {"'nested'", "list of lists"}, nested.bytes());
}

TEST(GgufFile, EachNameOnceAndEachValueOfItsType) {
  GgufBytes twice = small();
  twice.u32("llama.block_count", 3);
  refused(ErrorCode::corrupt_file, {"'llama.block_count' twice"}, twice.bytes());
  GgufBytes same = small();
  same.tensor("one", {1}, 0, raw_floats({1}));
  refused(ErrorCode::corrupt_file, {"'one' is there twice"}, same.bytes());
  GgufBytes odd = small();
  odd.key("odd", 13, "");
  refused(ErrorCode::corrupt_file, {"'odd'", "type 13"}, odd.bytes());
  GgufBytes truth = small();
  truth.key("truth", 7, "\2");
  refused(ErrorCode::corrupt_file, {"'truth'", "truth value 2"}, truth.bytes());
  GgufBytes step = small();
  step.u32("general.alignment", 24);
  refused(ErrorCode::corrupt_file, {"'general.alignment' is 24", "power of two"}, step.bytes());

  const GgufFile file = opened(small().bytes());
  expect_error(ErrorCode::corrupt_file, {"'llama.block_count' is 2, allowed is a text"}, [&] { file.text("llama.block_count"); });
  expect_error(ErrorCode::corrupt_file, {"'llama.block_count' is 2, allowed is a whole number from 3 to 9"}, [&] { file.integer("llama.block_count", 3, 9); });
  expect_error(ErrorCode::corrupt_file, {"lacks 'llama.none'"}, [&] { file.integer("llama.none", 3, 9); });
  expect_error(ErrorCode::corrupt_file, {"'words' is a list of 3 values of type text"}, [&] { file.numbers("words"); });
}

TEST(GgufFile, AnotherAlignment) {
  GgufBytes bytes;
  bytes.alignment = 128;
  bytes.u32("general.alignment", 128);
  bytes.tensor("one", {1}, 0, raw_floats({1}));
  bytes.tensor("two", {1}, 0, raw_floats({2}));
  const GgufFile file = opened(bytes.bytes());
  std::vector<float> value(1);
  file.read(*file.find("two"), value);
  EXPECT_EQ(value[0], 2);
}

}  // namespace
}  // namespace lockstep
