#include "api/fireworks/json_batch.h"

#include <gtest/gtest.h>

#include "api/errors.h"
#include "base/client_work.h"
#include "base/growth_test_tools.h"
#include "base/philox.h"

namespace lockstep {
namespace {

BatchMessage decode(const std::string& text, bool packed = true) {
  return decode_json_batch(read_json(text, packed ? kBatchJson : JsonLimits{}), "forward_backward_input");
}
std::string batch_of(const std::string& data) {
  return R"({"model_id":"m","seq_id":3,"forward_backward_input":{"loss_fn":"ppo","loss_fn_config":{"a":1,"b":"t","c":true},"data":)" + data + "}}";
}
std::string datum_of(const std::string& tokens, const std::string& inputs) {
  return R"({"model_input":{"chunks":[{"type":"encoded_text","tokens":)" + tokens + R"(}]},"loss_fn_inputs":{)" + inputs + "}}";
}
std::string error_of(const std::string& data, bool packed = true) {
  const BatchMessage message = decode(batch_of(data), packed);
  return message.error ? message.error->what() : "";
}

TEST(JsonBatch, NumbersBecomeWhatTheirTypeSaysWhereverItStands) {
  const BatchMessage message = decode(batch_of(
      "[" + datum_of("[1,2,3]", R"("w":{"data":[1,2.5,-3],"dtype":"float32"},"i":{"dtype":"int64","data":[4,5,6],"shape":[3,1]},"f":{"data":[1,2,16777217]})") +
      "]"));
  ASSERT_FALSE(message.error) << message.error->what();
  const TrainingDatum& datum = message.batch.data.at(0);
  EXPECT_EQ(datum.tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(datum.inputs.at("w").floats, (std::vector<float>{1, 2.5, -3}));
  EXPECT_EQ(datum.inputs.at("i").integers, (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(datum.inputs.at("i").shape, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(datum.inputs.at("f").floats, (std::vector<float>{1, 2, 16777216}));
  EXPECT_EQ(message.model, "m");
  EXPECT_EQ(message.sequence, 3);
  EXPECT_EQ(message.batch.loss.config.size(), 3u);
}

TEST(JsonBatch, WhatIsWrongIsNamed) {
  EXPECT_EQ(error_of("[" + datum_of("[1,2.5]", "") + "]"), "data[0].model_input.chunks[0].tokens[1] is no whole number");
  EXPECT_EQ(error_of("[" + datum_of("[1]", R"("w":{"dtype":"int64","data":[1,2,0.5]})") + "]"), "data[0].loss_fn_inputs.w.data[2] is no whole number");
  EXPECT_EQ(error_of("[" + datum_of("[1]", R"("w":{"data":[1,"a"]})") + "]"), "data[0].loss_fn_inputs.w.data[1] is no number");
  EXPECT_EQ(error_of("[" + datum_of("7", "") + "]"), "data[0].model_input.chunks[0].tokens is no list of numbers");
  EXPECT_EQ(error_of(R"([{"model_input":{"chunks":[{"type":"encoded_text","tokens":[1],"data":"x","format":null}]},"loss_fn_inputs":{}}])"),
            "data[0].model_input.chunks[0].data is given in a chunk of encoded_text, allowed are type and tokens");
  EXPECT_EQ(error_of("[" + datum_of("[1]", R"("w":{"data":[1],"sparse_col_indices":[0]})") + "]"),
            "data[0].loss_fn_inputs.w.sparse_col_indices is given without sparse_crow_indices, allowed are both or none");
  EXPECT_EQ(error_of("[1,2]"), "forward_backward_input.data is missing, or no list");
}

// Read as JsonNumbers or not, a body gives the same batch, or the same error.
TEST(JsonBatch, CompactNumbersChangeNothing) {
  RandomSequence draws(9, RandomStream::fuzz);
  const auto list = [&] {
    std::string text = "[";
    const std::uint32_t kind = draws.below(8);
    for (std::uint32_t n = draws.below(12), i = 0; i < n; ++i) {
      if (i > 0) text += ',';
      if (kind < 4 || draws.below(6) > 0) text += std::to_string(static_cast<int>(draws.below(2000)) - 900);
      else text += std::vector<const char*>{"0.1", "1e30", "true", "\"a\"", "null", "[]", "-0.0", "9223372036854775807", "{}", "[1,2]"}[draws.below(10)];
    }
    return text + "]";
  };
  int right = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = batch_of("[" +
                                      datum_of(list(), "\"w\":{\"dtype\":\"" + std::string(draws.below(2) ? "int64" : "float32") + "\",\"data\":" + list() +
                                                           "},\"v\":{\"data\":" + list() + "}") +
                                      "]");
    const BatchMessage packed = decode(text), plain = decode(text, false);
    ASSERT_EQ(packed.error.has_value(), plain.error.has_value()) << text;
    if (packed.error) {
      EXPECT_STREQ(packed.error->what(), plain.error->what()) << text;
      continue;
    }
    ++right;
    const TrainingDatum &a = packed.batch.data.at(0), &b = plain.batch.data.at(0);
    EXPECT_EQ(a.tokens, b.tokens);
    for (const auto& [name, tensor] : a.inputs) {
      EXPECT_EQ(tensor.floats, b.inputs.at(name).floats) << text;
      EXPECT_EQ(tensor.integers, b.inputs.at(name).integers);
      EXPECT_EQ(tensor.shape, b.inputs.at(name).shape);
    }
  }
  EXPECT_GT(right, 500);
}

TEST(JsonBatch, WorkGrowsWithTheLength) {
  const auto run = [](const std::string& text) { decode(text); };
  const auto repeated = [](const std::string& one) {
    return [one](std::size_t size) {
      std::string data = "[" + one;
      while (data.size() < size) data += "," + one;
      return batch_of(data + "]");
    };
  };
  EXPECT_LT(growth(repeated("{}"), run, 20'000), kLinearGrowth);
  EXPECT_LT(growth(repeated(datum_of("[1,2,3]", R"("target_tokens":{"dtype":"int64","data":[2,3,4]})")), run, 50'000), kLinearGrowth);
  EXPECT_LT(growth(
                [](std::size_t size) {
                  std::string tokens = "[1";
                  while (tokens.size() < size) tokens += ",1";
                  return batch_of("[" + datum_of(tokens + "]", "") + "]");
                },
                run, 50'000),
            kLinearGrowth);
}

// A few bytes that claim much are refused before the memory is taken, and use no number.
TEST(JsonBatch, WhatItTakesIsCountedFirst) {
  struct Account : MemoryAccount {
    void take(std::size_t bytes) override {
      if ((taken += bytes) > (16 << 20)) throw RequestError(ErrorCode::resource_exhausted, {}, "no room", 429);
    }
    std::size_t taken = 0;
  };
  const ClientWork work(nullptr, std::make_shared<Account>());
  const std::string sparse = datum_of("[1]", R"("w":{"dtype":"int64","shape":[1,60000000],"data":[],"sparse_crow_indices":[0,0],"sparse_col_indices":[]})");
  EXPECT_THROW(decode(batch_of("[" + sparse + "]")), RequestError);
}

}  // namespace
}  // namespace lockstep
