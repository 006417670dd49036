// The file of a difference between sampling and training: text and case are one to one, and what is no case is refused with the field at fault.
#include "checkpoint/difference_case.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_sha256.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

DifferenceCase made_case() {
  DifferenceCase one;
  one.model = "weights", one.model_sha256 = "aa", one.adapter = "/models/adapter", one.adapter_sha256 = "bb";
  one.mla_norm_eps = 1e-5;
  one.profile = "cpu-bf16w", one.profile_digest = "cc";
  one.backend = "cpu", one.isa = "avx2", one.ranks = "tp=2,dp=1,ep=1", one.keep_forward = "inputs";
  one.threads = 3, one.step = 7, one.weights_version = 6;
  one.temperature = 0.7f, one.top_p = 0.9f, one.min_p = 0.05f, one.top_k = 40;
  one.shared_prefix = 1;
  one.tokens = {5, 1, 900, 3, 4};
  one.positions = {2, 4};
  one.sampler_bits = {std::bit_cast<std::uint32_t>(-0.25f), std::bit_cast<std::uint32_t>(-1.5f)};
  one.trainer_bits = {one.sampler_bits[0], one.sampler_bits[1] ^ 1u};
  const std::int32_t few[] = {4, 900};
  std::vector<std::int32_t> many;
  for (std::int32_t id = 0; id < 999; id += 2) many.push_back(id);
  one.kept = {KeptTokens::of(KeptTokens::Order::by_rank, few, 1000), KeptTokens::of(KeptTokens::Order::by_id, many, 1000)};
  return one;
}

class DifferenceCaseFile : public testing::Test {
 protected:
  DifferenceCaseFile() { fs::create_directories(root_); }
  ~DifferenceCaseFile() override { fs::remove_all(root_); }
  std::string refused(const std::string& text, ErrorCode code = ErrorCode::corrupt_file) {
    write_file_atomic(file_, text);
    try {
      read_case(file_);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      return e.what();
    }
    return "accepted";
  }
  // Of the made case with another value of a field.
  std::string refused_with(const std::string& field, const Json& value, ErrorCode code = ErrorCode::corrupt_file) {
    Json json = Json::parse(case_text(made_case()));
    json[field] = value;
    return refused(json.dump(), code);
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_difference_case_file_" + std::to_string(::getpid())), file_ = root_ / "case.json";
};

TEST_F(DifferenceCaseFile, IsReadToTheByte) {
  DifferenceCase one = made_case();
  for (int round = 0; round < 3; ++round) {
    write_case(file_, one);
    const DifferenceCase again = read_case(file_);
    EXPECT_TRUE(again == one) << round;
    EXPECT_EQ(case_text(again), read_file(file_, 1 << 20)) << round;
    if (round == 0) one.kept[0] = {};  // nothing was cut of one
    if (round == 1) one.kept.clear(), one.adapter.clear(), one.adapter_sha256.clear(), one.trainer_bits = one.sampler_bits;
  }
  EXPECT_EQ(made_case().first_different(), 1u);
  EXPECT_FALSE(one.first_different());
  EXPECT_EQ(case_path(file_, "weights"), root_ / "weights");
  EXPECT_EQ(case_path(file_, "/models/adapter"), fs::path("/models/adapter"));
}

TEST_F(DifferenceCaseFile, EveryFaultNamesItsField) {
  const std::string good = case_text(made_case());
  EXPECT_EQ(refused(good), "accepted");
  EXPECT_NE(refused_with("version", 2, ErrorCode::unsupported).find("version is 2, allowed is 1"), std::string::npos);
  const std::tuple<const char*, Json, const char*> faults[] = {
      {"format", "another", "format is \"another\", allowed is \"lockstep difference case\""},
      {"model", "", "model is empty"},
      {"profile", 3, "profile is 3, allowed is a text"},
      {"adapter", "", "adapter_sha256 is there"},
      {"threads", 0, "threads is 0, allowed are integers from 1 to 4096"},
      {"threads", 1e9, "threads is"},
      {"step", 18446744073709551615ull, "step is 18446744073709551615"},
      {"temperature", 0, "temperature is 0"},
      {"temperature", nullptr, "temperature is null"},
      {"top_p", 1.5, "top_p is 1.5, allowed is a number from 0 to 1"},
      {"tokens", Json::array({1}), "tokens is a list of 1"},
      {"tokens", Json::array({5, -1, 900, 3, 4}), "tokens[1] is -1"},
      {"positions", Json::array(), "positions is a list of 0"},
      {"positions", Json::array({2, 5}), "positions[1] is 5, allowed are integers from 3 to 4"},
      {"positions", Json::array({4, 2}), "positions[1] is 2"},
      {"positions", Json::array({0, 2}), "positions[0] is 0, allowed are integers from 1 to 4"},
      {"shared_prefix", 2, "shared_prefix is 2, allowed are integers from 0 to 1"},
      {"sampler_bits", Json::array({"0xbe800000"}), "sampler_bits is a list of 1, allowed is a list of 2 to 2"},
      {"sampler_bits", Json::array({"0xbe800000", "0x7fc00000"}), "sampler_bits[1] is 0x7fc00000, the bits of a NaN"},
      {"trainer_bits", Json::array({"0xff800000", "0xbe800000"}), "trainer_bits[0] is 0xff800000, the bits of a NaN or an infinity"},
      {"trainer_bits", Json::array({"be800000", "0xbe800000"}), "trainer_bits[0] is \"be800000\""},
      {"trainer_bits", Json::array({"0xBE800000", "0xbe800000"}), "trainer_bits[0] is \"0xBE800000\""},
      {"trainer_bits", Json::array({1, 2}), "trainer_bits[0] is 1"},
      {"kept", Json::array({Json::array()}), "kept is a list of 1"},
      {"kept", Json::array({Json::array(), Json::array({3, 1, "00000001"})}), "kept[1][0] is 3"},
      {"kept", Json::array({Json::array(), Json::array({2, 1, "0000000100000002"})}), "kept[1] is"},
      {"kept", Json::array({Json::array(), Json::array({2, 1, "0000000g"})}), "kept[1] is"},
      {"first_different", 2, "first_different is 2, allowed is 4"},
      {"first_different", nullptr, "first_different is null"},
      {"more", 1, "the field 'more' is not one of a case's"},
  };
  for (const auto& [field, value, words] : faults) {
    const std::string said = refused_with(field, value);
    EXPECT_NE(said.find(words), std::string::npos) << field << " " << value << ": " << said;
  }
  Json without = Json::parse(good);
  without.erase("isa");
  EXPECT_NE(refused(without.dump()).find("the field isa is missing"), std::string::npos);
}

TEST_F(DifferenceCaseFile, HostileBytesAreRefused) {
  const std::string good = case_text(made_case());
  for (std::size_t length = 0; length + 2 < good.size(); length += 97) EXPECT_NE(refused(good.substr(0, length)), "accepted") << length;
  for (const std::string bad : {std::string("[1]"), std::string(200, '['), std::string("\0\xff", 2), std::string("{}")}) EXPECT_NE(refused(bad), "accepted");
  fs::remove(file_);
  try {
    read_case(file_);
    ADD_FAILURE() << "a file that is not there was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
  }
  // Longer than any case, and refused before it is read: it takes no room on the disk.
  write_file_atomic(file_, "{");
  fs::resize_file(file_, (std::uintmax_t{256} << 20) + 1);
  try {
    read_case(file_);
    ADD_FAILURE() << "a file of more than 256 MiB was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
  }
}

TEST_F(DifferenceCaseFile, NamesTheFilesThatAModelIsComputedWith) {
  write_file_atomic(root_ / "config.json", "{}");
  write_file_atomic(root_ / "model.safetensors", "12345678");
  const std::string before = model_sha256(root_);
  write_file_atomic(root_ / "tokenizer.json", "{}");
  EXPECT_EQ(model_sha256(root_), before);  // it computes nothing
  write_file_atomic(root_ / "model.safetensors", "12345679");
  const std::string other = model_sha256(root_);
  EXPECT_NE(other, before);
  write_file_atomic(root_ / "config.json", "{ }");
  EXPECT_NE(model_sha256(root_), other);
  EXPECT_NE(model_sha256(root_ / "model.safetensors"), other);
  EXPECT_THROW(model_sha256(root_ / "nowhere"), Error);
}

}  // namespace
}  // namespace lockstep
