#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/safetensors_test_tools.h"
#include "numerics/element.h"

namespace lockstep {
namespace {

using Entry = SafetensorsWriter::Entry;

SafetensorsFile parse(std::string bytes) { return SafetensorsFile::from_bytes(std::move(bytes), "m.safetensors"); }

// A file of this header with `data` bytes behind it.
std::string with_header(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\0');
}

// Every word of `parts` stands in the one error that these bytes give.
void expect_corrupt(const std::string& bytes, const std::vector<std::string>& parts, ErrorCode code = ErrorCode::corrupt_file) {
  try {
    parse(bytes);
    ADD_FAILURE() << "no error; expected: " << parts[0];
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(e.message().find("m.safetensors"), std::string::npos) << e.what();
    for (const std::string& part : parts) EXPECT_NE(e.message().find(part), std::string::npos) << e.what() << "\nlacks: " << part;
  }
}

TEST(Safetensors, WritesTheBytesOfTheReferenceLibrary) {
  const std::string bytes =
      safetensors_bytes({{"b", SafetensorsType::f32, {2}}, {"a", SafetensorsType::bf16, {1, 2}}, {"c", SafetensorsType::f32, {}}}, {{1, 2}, {3}, {4, 5}});
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("c":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[12,16]}})";
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ((bytes.size() - 16) % 8, 0u);
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.read(file.tensor("b")), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.read(file.tensor("c")), (std::vector<float>{3}));
  EXPECT_EQ(file.read(file.tensor("a")), (std::vector<float>{4, 5}));
  EXPECT_EQ(file.find("d"), nullptr);
}

TEST(Safetensors, ValuesOfEachType) {
  std::vector<float> values;
  for (int i = 0; i < 70000; ++i) values.push_back(std::ldexp(1.0f + static_cast<float>(i) / 70000, i % 50 - 25));
  const std::string bytes = safetensors_bytes({{"f", SafetensorsType::f32, {70000}}, {"h", SafetensorsType::bf16, {70000}}}, {values, values});
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.read(file.tensor("f")), values);
  const std::vector<float> rounded = file.read(file.tensor("h"));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(rounded[i], widen(round_to_bf16(values[i]))) << i;
  std::vector<float> part(100);
  file.read(file.tensor("h"), part, 40000);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), rounded.begin() + 40000));

  std::string halves = with_header(R"({"x":{"dtype":"F16","shape":[7],"data_offsets":[0,14]}})", 14);
  const std::uint16_t bits[] = {0x3c00, 0xc000, 0x0001, 0x8000, 0x7bff, 0x7c00, 0x03ff};
  std::memcpy(halves.data() + halves.size() - 14, bits, 14);
  const SafetensorsFile half_file = parse(halves);
  const std::vector<float> got = half_file.read(half_file.tensor("x"));
  const std::vector<float> want = {1, -2, 0x1p-24f, -0.0f, 65504, INFINITY, 1023 * 0x1p-24f};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(float_bits(got[i]), float_bits(want[i])) << i;
}

TEST(Safetensors, TypesThatAreNoFloatsAreRefusedOnReading) {
  const SafetensorsFile file =
      parse(with_header(R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"y":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})", 16));
  try {
    file.read(file.tensor("x"));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_EQ(e.message(), "'m.safetensors': tensor 'x' has the dtype F64, allowed are F32, BF16, F16 and F8_E4M3");
  }
  EXPECT_EQ(file.read_integers(file.tensor("y")), std::vector<std::int64_t>{0});
  EXPECT_THROW(file.read_integers(file.tensor("x")), Error);
}

TEST(Safetensors, EveryFaultIsNamed) {
  const auto one = [](const std::string& fields) { return "{\"x\":{" + fields + "}}"; };
  expect_corrupt("", {"0 bytes"});
  expect_corrupt("1234567", {"7 bytes"});
  expect_corrupt(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), {"18446744073709551615", "100000000"});
  expect_corrupt(std::string("\x50\0\0\0\0\0\0\0{}", 10), {"truncated", "80", "2 bytes"});
  expect_corrupt(with_header("", 0), {"begin with"});
  expect_corrupt(with_header(" {}", 0), {"begin with"});
  expect_corrupt(with_header("{", 0), {"not valid JSON"});
  expect_corrupt(with_header("{}x", 0), {"not valid JSON"});
  expect_corrupt(with_header("{\"\xff\":1}", 0), {"not valid JSON"});
  expect_corrupt(with_header("{\"x\":[]}", 0), {"'x'", "a list"});
  expect_corrupt(with_header("{\"x\":3}", 0), {"'x'", "3"});
  expect_corrupt(with_header("{\"__metadata__\":{\"a\":1}}", 0), {"'a'", "1", "string"});
  expect_corrupt(with_header("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), {"'a' twice"});
  expect_corrupt(with_header(one(R"("shape":[1],"data_offsets":[0,4])"), 4), {"'x'", "no dtype"});
  expect_corrupt(with_header(one(R"("dtype":"F32","data_offsets":[0,4])"), 4), {"'x'", "no shape"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1])"), 4), {"'x'", "no data_offsets"});
  expect_corrupt(with_header(one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4), {"'x'", "'F33'", "did you mean"});
  expect_corrupt(with_header(one(R"("dtype":"F4","shape":[1],"data_offsets":[0,4])"), 4), {"'x'", "'F4'"}, ErrorCode::unsupported);
  expect_corrupt(with_header(one(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4), {"'x'", "dtype", "32"});
  expect_corrupt(with_header(one(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4), {"'x'", "'dtype' twice"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4), {"'x'", "-1"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4), {"'x'", "1.5"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4), {"'x'", "a list"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4), {"'x'", "shape", "1"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4), {"'x'", "1 'data_offsets'"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4), {"'x'", "more than 2"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4), {"'x'", "[4, 0]", "backwards"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4), {"'x'", "[2]", "8 bytes", "hold 4"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0])"), 0), {"'x'", "overflow"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0), {"'x'", "overflow"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,0])"), 0), {"'x'"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1)"), 4), {"'x'", "'extra'"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4), {"truncated", "'x'", "[0, 8]", "4 bytes"});
  expect_corrupt(with_header(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 7), {"3 surplus bytes"});
  expect_corrupt(with_header("{}", 1), {"1 surplus bytes"});
  const std::string x = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)";
  expect_corrupt(with_header(x + R"("x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), {"'x' twice"});
  expect_corrupt(with_header(x + R"("y":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6), {"'y'", "'x'", "byte 2"});
  expect_corrupt(with_header(x + R"("y":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})", 10), {"from 4 to 6", "'y'"});
  expect_corrupt(with_header("{" + std::string(100000, '['), 0), {"not valid JSON"});
  expect_corrupt(with_header("{\"" + std::string(100000, 'n') + "\":1}", 0), {"nnn...'"});
}

TEST(Safetensors, EmptyFilesAndTensorsAreFine) {
  EXPECT_TRUE(parse(with_header("{}", 0)).tensors().empty());
  const SafetensorsFile file = parse(with_header(R"({"x":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}}   )", 0));
  EXPECT_TRUE(file.read(file.tensor("x")).empty());
}

// Mutated files: an error or a file that can be read to the end, nothing else. The sanitizers look on in the checked
// build.
TEST(Safetensors, AnyMutationIsAnErrorOrAFile) {
  const std::string valid =
      safetensors_bytes({{"model.a", SafetensorsType::f32, {2, 3}}, {"model.b", SafetensorsType::bf16, {5}}, {"c", SafetensorsType::f32, {0}}},
                        {std::vector<float>(), std::vector<float>(6, 1), std::vector<float>(5, 2)});
  // Sorted by type, then name: c, model.a, model.b.
  ASSERT_EQ(parse(valid).tensors().size(), 3u);
  const std::vector<std::string> words = {"0",         "9",       "-1",  "18446744073709551615", "1e400", "[", "]", "{", "}", "\"", ",", ":", "null",
                                          "\"shape\"", "\\u0000", "\xff"};
  setenv("RC_PARAMS", "max_success=5000", 0);
  const bool passed = rc::check("no mutation crashes", [&] {
    std::string bytes = valid;
    const int mutations = *rc::gen::inRange(1, 6);
    for (int i = 0; i < mutations; ++i) {
      const auto at = static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(bytes.size()) + 1));
      switch (*rc::gen::inRange(0, 5)) {
        case 0:
          if (at < bytes.size()) bytes[at] = *rc::gen::arbitrary<char>();
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, *rc::gen::elementOf(words));
          break;
        case 3:
          bytes.erase(at, static_cast<std::size_t>(*rc::gen::inRange(1, 9)));
          break;
        case 4:
          if (bytes.size() >= 8) {  // a header length that fits, so that the mutation is looked at
            const std::uint64_t length = bytes.size() - 8 - std::min<std::size_t>(bytes.size() - 8, 34);
            std::memcpy(bytes.data(), &length, 8);
          }
          break;
      }
    }
    try {
      const SafetensorsFile file = parse(bytes);
      for (const SafetensorsTensor& t : file.tensors())
        if (t.type == SafetensorsType::f32 || t.type == SafetensorsType::bf16) RC_ASSERT(static_cast<std::int64_t>(file.read(t).size()) == t.elements());
    } catch (const Error& e) {
      RC_ASSERT(e.code() == ErrorCode::corrupt_file || e.code() == ErrorCode::unsupported);
    }
  });
  EXPECT_TRUE(passed);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string valid = safetensors_bytes({{"a", SafetensorsType::f32, {2, 3}}}, {std::vector<float>(6, 1)});
  for (std::size_t length = 0; length < valid.size(); ++length) EXPECT_THROW(parse(valid.substr(0, length)), Error) << length;
}

TEST(Safetensors, OpensTheGoldensAndRefusesWhatIsNoFile) {
  const std::string folder = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/sharing/";
  const SafetensorsFile file = SafetensorsFile::open(folder + "golden.safetensors");
  EXPECT_GT(file.tensors().size(), 100u);
  for (const SafetensorsTensor& t : file.tensors())
    if (t.type == SafetensorsType::f32) {
      for (const float value : file.read(t)) ASSERT_TRUE(std::isfinite(value)) << t.name;
    }
  try {
    SafetensorsFile::open(folder + "none.safetensors");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
  }
  try {
    SafetensorsFile::open(folder);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
  }
}

TEST(Safetensors, WriterRefusesMisuse) {
  EXPECT_THROW(safetensors_bytes({{"a", SafetensorsType::f32, {1}}, {"a", SafetensorsType::f32, {1}}}, {{1}, {1}}), Error);
  EXPECT_THROW(safetensors_bytes({{"a", SafetensorsType::f32, {2}}}, {{1}}), Error);
  EXPECT_THROW(safetensors_bytes({{"a", SafetensorsType::f32, {1}}}, {}), Error);
  EXPECT_THROW(safetensors_bytes({{"a", SafetensorsType::i64, {1}}}, {{1}}), Error);
}

}  // namespace
}  // namespace lockstep
