#include "api/tinker/proto_codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <zstd.h>

#include <cstring>

#include "api/body_budget.h"
#include "api/errors.h"
#include "api/tinker/body_head.h"
#include "api/tinker/sparse.h"
#include "api/tinker/tinker_public.pb.h"
#include "api/tinker/zstd_body.h"
#include "base/client_work.h"
#include "base/growth_test_tools.h"
#include "base/philox.h"

namespace lockstep {
namespace {
namespace pb = tinker_public;

BatchMessage decode_batch(std::string_view bytes) {
  TextSource source(bytes);
  return lockstep::decode_batch(source);
}

TEST(SparseMatrices, BecomeDense) {
  EXPECT_EQ(dense_of_csr<float>({1, 2, 3}, {0, 1, 1, 3}, {2, 0, 1}, {3, 3}, "w"), (std::vector<float>{0, 0, 1, 0, 0, 0, 2, 3, 0}));
}

// Any indices at all: a matrix or one error, never a write elsewhere (the sanitizers see to that).
RC_GTEST_PROP(SparseMatrices, AnyIndicesAreAMatrixOrAnError, ()) {
  const auto numbers = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(-3, 6));
  const auto columns = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(-2, 5));
  const std::vector<std::int64_t> shape{*rc::gen::inRange<std::int64_t>(0, 4), *rc::gen::inRange<std::int64_t>(0, 4)};
  try {
    const auto dense =
        dense_of_csr<float>(std::vector<float>(columns.size(), 1.0f), numbers.empty() ? std::vector<std::int64_t>{0} : numbers, columns, shape, "w");
    RC_ASSERT(static_cast<std::int64_t>(dense.size()) == shape[0] * shape[1]);
  } catch (const Error& e) {
    RC_ASSERT(e.code() == ErrorCode::invalid_argument);
  }
}

TEST(SparseMatrices, MayNotGrowBeyondTheMessagesRoom) {
  DenseRoom room;
  room.take(std::int64_t{1} << 25, "a");
  room.take(std::int64_t{1} << 25, "b");
  EXPECT_THROW(room.take(1, "c"), Error);
}

TEST(ProtoCodec, BytesThatAreNoMessageAreOneError) { EXPECT_THROW(decode_batch("\xff\xff\xff\xff\xff"), Error); }

TEST(ProtoCodec, TextThatIsNotUtf8IsAnErrorAndNoLineOnStderr) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(decode_batch("\x0a\x02\xc3\x28"), Error);  // model_id
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

std::string field_of_bytes(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// A field that a message does not have is the batch's error, in whatever message; its model and number are known all the same, since the number
// is taken. Where a sample's tokens came from is harmless (docs/fields.md).
TEST(ProtoCodec, FieldsThatAreNotKnownAreNotTakenInSilence) {
  const std::string strange = field_of_bytes(9, "x"), head = field_of_bytes(1, "m"), tail = std::string("\x10\x07", 2);
  const auto datum = [](const std::string& inside) { return field_of_bytes(3, inside); };
  const auto tensor = [&](const std::string& inside) { return datum(field_of_bytes(2, field_of_bytes(1, "w") + field_of_bytes(2, inside))); };
  const std::pair<std::string, std::string> messages[] = {
      {"ForwardBackwardRequest", strange},
      {"Datum", datum(strange)},
      {"Chunk", datum(field_of_bytes(1, strange))},
      {"EncodedTextChunk", datum(field_of_bytes(1, field_of_bytes(1, strange)))},
      {"loss_fn_inputs", datum(field_of_bytes(2, strange))},
      {"Tensor", tensor(strange)},
      {"SparseCsr", tensor(field_of_bytes(2, strange))},
      {"loss_fn_config", field_of_bytes(5, strange)},
      {"loss_fn_config_v2", field_of_bytes(7, strange)},
      {"LossConfigValue", field_of_bytes(7, field_of_bytes(2, strange))},
  };
  for (const auto& [name, bytes] : messages) {
    const BatchMessage batch = decode_batch(head + bytes + tail);
    ASSERT_TRUE(batch.error) << name;
    EXPECT_EQ(batch.error->message(), name + " has a field 9 that is not known");
    EXPECT_EQ(batch.model, "m") << name;
    EXPECT_EQ(batch.sequence, 7) << name;
  }
  const BatchMessage other = decode_batch(head + std::string("\x1d\x01\x00\x00\x00", 5) + tail);  // a number of a known field, of another wire type
  ASSERT_TRUE(other.error);
  EXPECT_EQ(other.error->message(), "ForwardBackwardRequest has a field 3 that is not known");
  for (const int spans : {3, 4}) EXPECT_FALSE(decode_batch(head + datum(field_of_bytes(spans, field_of_bytes(1, "")))).error) << spans;
}

RC_GTEST_PROP(ProtoCodec, AnyBytesAreAMessageOrAnError, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  try {
    decode_batch(bytes);
  } catch (const Error& e) {
    RC_ASSERT(e.code() == ErrorCode::invalid_argument);
  }
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

pb::ForwardBackwardRequest random_message(RandomSequence& draws) {
  pb::ForwardBackwardRequest message;
  message.set_model_id("s-1:train:" + std::to_string(draws.below(9)));
  message.set_seq_id(static_cast<std::int32_t>(draws.below(1000)) - 10);
  message.set_loss_fn("ppo");
  message.set_forward_only(draws.below(2) == 1);
  for (std::uint32_t n = draws.below(3); n > 0; --n) (*message.mutable_loss_fn_config())["c" + std::to_string(n)] = draws.below(100) / 7.0;
  if (draws.below(2)) (*message.mutable_loss_fn_config_v2())["t"].set_text("text");
  if (draws.below(2)) (*message.mutable_loss_fn_config_v2())["c1"].set_number(-1.5);
  for (std::uint32_t n = draws.below(4); n > 0; --n) {
    pb::Datum& datum = *message.add_data();
    for (std::uint32_t c = draws.below(3); c > 0; --c) {
      std::vector<std::int32_t> tokens(draws.below(20));
      for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(draws.below(1000));
      datum.add_model_input()->mutable_encoded_text()->set_tokens(raw(tokens));
    }
    std::vector<std::int64_t> targets(2 + draws.below(20));
    for (std::int64_t& t : targets) t = draws.below(1000);
    pb::Tensor& tensor = (*datum.mutable_loss_fn_inputs())["target_tokens"];
    tensor.set_dtype(pb::INT64);
    tensor.set_dense(raw(targets));
    if (draws.below(2)) tensor.add_shape(static_cast<std::int64_t>(targets.size()));
    pb::Tensor& sparse = (*datum.mutable_loss_fn_inputs())["weights"];
    sparse.set_dtype(pb::FLOAT32);
    sparse.add_shape(2), sparse.add_shape(3);
    sparse.mutable_sparse_csr()->set_values(raw(std::vector<float>{1.5f, -2.0f}));
    sparse.mutable_sparse_csr()->set_crow_indices(raw(std::vector<std::int64_t>{0, 1, 2}));
    sparse.mutable_sparse_csr()->set_col_indices(raw(std::vector<std::int64_t>{2, draws.below(3)}));
    datum.add_model_input_spans()->mutable_prompt_tokens()->set_sequence_id("q");
  }
  return message;
}

// What the library reads of a message is what we read of it as it comes, also through zstd.
TEST(ProtoCodec, ReadsWhatItsLibraryReads) {
  RandomSequence draws(5, RandomStream::fuzz);
  for (int i = 0; i < 200; ++i) {
    const pb::ForwardBackwardRequest message = random_message(draws);
    const std::string bytes = message.SerializeAsString();
    const BatchMessage batch = decode_batch(bytes);
    EXPECT_FALSE(batch.error) << batch.error->what();
    EXPECT_EQ(batch.model, message.model_id());
    EXPECT_EQ(batch.sequence, message.seq_id());
    EXPECT_EQ(batch.batch.forward_only, message.forward_only());
    EXPECT_EQ(batch.batch.loss.name, message.loss_fn());
    std::map<std::string, LossValue> config;
    for (const auto& [name, value] : message.loss_fn_config()) config[name] = value;
    for (const auto& [name, value] : message.loss_fn_config_v2()) value.has_text() ? config[name] = value.text() : config[name] = value.number();
    EXPECT_EQ(batch.batch.loss.config, config);
    ASSERT_EQ(batch.batch.data.size(), static_cast<std::size_t>(message.data_size()));
    for (int d = 0; d < message.data_size(); ++d) {
      const TrainingDatum& datum = batch.batch.data[static_cast<std::size_t>(d)];
      std::string tokens;
      for (const pb::Chunk& chunk : message.data(d).model_input()) tokens += chunk.encoded_text().tokens();
      EXPECT_EQ(raw(datum.tokens), tokens);
      EXPECT_EQ(datum.inputs.size(), 2u);
      const NamedTensor& targets = datum.inputs.at("target_tokens");
      EXPECT_EQ(raw(targets.integers), message.data(d).loss_fn_inputs().at("target_tokens").dense());
      EXPECT_EQ(targets.shape, std::vector<std::int64_t>{static_cast<std::int64_t>(targets.integers.size())});
      EXPECT_EQ(datum.inputs.at("weights").floats[2], 1.5f);
    }
    TextSource head(bytes);
    EXPECT_EQ(proto_model(head), message.model_id());
    // Cut, it is no message, wherever; changed, it is one where the library says so.
    if (const std::size_t cut = draws.below(static_cast<std::uint32_t>(bytes.size())); !pb::ForwardBackwardRequest().ParseFromString(bytes.substr(0, cut))) {
      EXPECT_THROW(decode_batch(std::string_view(bytes).substr(0, cut)), Error) << cut;
    }
    std::string changed = bytes;
    changed[draws.below(static_cast<std::uint32_t>(bytes.size()))] ^= static_cast<char>(1 + draws.below(255));
    if (pb::ForwardBackwardRequest().ParseFromString(changed)) {
      EXPECT_NO_THROW(decode_batch(changed));
    }
  }
}

TEST(ProtoCodec, WhatADecoderTakesIsCountedAsLongAsItLives) {
  std::string packed(1 << 20, ' ');
  const std::string text(std::size_t{32} << 20, ' ');
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, 23);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, 0);
  packed.resize(ZSTD_compress2(context.get(), packed.data(), packed.size(), text.data(), text.size()));
  const auto budget = std::make_shared<BodyBudget>(std::int64_t{64} << 20, 100);
  const auto lease = budget->lease("a");
  const ClientWork scope(nullptr, lease);
  {
    ZstdSource source(packed, text.size());
    EXPECT_FALSE(source.next().empty());
    EXPECT_GT(budget->bytes(), 8 << 20);
    while (!source.next().empty()) {
    }
    EXPECT_LT(budget->bytes(), 9 << 20);  // once
  }
  EXPECT_EQ(budget->bytes(), 0);
  lease->settle(50 << 20);
  EXPECT_THROW(ZstdSource(packed, text.size()).next(), RequestError);
  EXPECT_EQ(budget->bytes(), 50 << 20);
}

TEST(ProtoCodec, WorkGrowsWithTheLengthWhateverTheForm) {
  const auto repeated = [](const std::string& one) {
    return [one](std::size_t size) {
      std::string text;
      while (text.size() < size) text += one;
      return text;
    };
  };
  const auto inside = [](const std::string& head, const std::string& one) {  // of one datum
    return [=](std::size_t size) {
      pb::ForwardBackwardRequest message;
      std::string datum;
      while (datum.size() < size) datum += one;
      message.add_data()->ParseFromString(datum);
      return head + message.SerializeAsString();
    };
  };
  const std::pair<const char*, std::function<std::string(std::size_t)>> forms[] = {
      {"empty datums", repeated(std::string("\x1a\x00", 2))},
      {"empty chunks", inside("", std::string("\x0a\x00", 2))},
      {"chunks of a token",
       inside("", std::string("\x0a\x08\x0a\x06\x0a\x04\x01\x00\x00\x00", 10).substr(0, 0) + std::string("\x0a\x08\x0a\x06\x0a\x04\x01\x00\x00\x00", 10))},
      {"empty tensors", inside("", std::string("\x12\x00", 2))},
      {"a model again and again", repeated(std::string("\x0a\x01m", 3))},
      {"a loss of the same name", repeated(std::string("\x2a\x03\x0a\x01"
                                                       "c",
                                                       5))},
      {"fields that nobody knows", repeated(std::string("\x78\x01", 2))},
      {"a long text",
       [](std::size_t size) {
         pb::ForwardBackwardRequest message;
         message.set_model_id(std::string(size, 'm'));
         return message.SerializeAsString();
       }},
  };
  for (const auto& [name, make] : forms)
    EXPECT_LT(growth(
                  make,
                  [](const std::string& bytes) {
                    try {
                      decode_batch(bytes);
                    } catch (const Error&) {
                    }
                  },
                  20'000),
              kLinearGrowth)
        << name;
}

TEST(JsonHead, FindsATextOfTheOutermostObjectAlone) {
  const auto found = [](std::string_view json) {
    TextSource source(json);
    return json_field(source, "model_id");
  };
  EXPECT_EQ(found(R"({"a":{"model_id":"x"},"b":["model_id","y",{"model_id":"z"}],"model_id":"right"})"), "right");
  EXPECT_EQ(found(R"({"model\u005fid":"r\u0069ght"})"), "right");
  EXPECT_EQ(found(R"({"a":"model_id","b":"\"model_id\":\"x\"","c":"\\"})"), std::nullopt);
  EXPECT_EQ(found(R"({"model_id":{"model_id":"x"},"model_id":"last"})"), "last");
  EXPECT_EQ(found(R"({"model_id":3,"x":"y"})"), std::nullopt);
  EXPECT_EQ(found("[\"model_id\",\"x\"]"), std::nullopt);
  EXPECT_EQ(found("{\"model_id\":\"" + std::string(2000, 'm') + "\"}"), std::nullopt);
  EXPECT_LT(growth([](std::size_t size) { return "{\"data\":[\"" + std::string(size, 'a') + "\",{}],\"model_id\":\"x\"}"; },
                   [](const std::string& json) {
                     TextSource s(json);
                     json_field(s, "model_id");
                   },
                   100'000),
            kLinearGrowth);
}

}  // namespace
}  // namespace lockstep
