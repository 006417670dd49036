// Tensors of every type come back bit for bit, whatever changed in them; payloads are the same bytes everywhere, and any others are refused.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "numerics/isa/word_classes.h"
#include "sync/codec_test_tools.h"
#include "sync/tensor_codec.h"
#include "sync/varint.h"

namespace lockstep {
namespace {

std::string decoded(const EncodedTensor& encoded, SafetensorsType type, const std::string& old_bytes, const std::string& new_bytes) {
  std::string to(new_bytes.size(), '?');
  decode_tensor(encoded.codec, type, encoded.codec == TensorCodec::full ? new_bytes : encoded.payload, old_bytes, to);
  return to;
}

// The codec of python/lockstep/_publish.py, written here as docs/weight-sync.md says.
std::string changes_payload(std::size_t width, const std::string& old_bytes, const std::string& new_bytes) {
  std::string gaps, words, payload;
  std::uint64_t count = 0, gap = 0;
  for (std::size_t at = 0; at < old_bytes.size(); at += width) {
    if (old_bytes.compare(at, width, new_bytes, at, width) == 0) {
      ++gap;
      continue;
    }
    put_varint(gaps, gap);
    words += new_bytes.substr(at, width);
    ++count;
    gap = 0;
  }
  put_varint(payload, count);
  put_varint(payload, gaps.size());
  return payload + gaps + words;
}

TEST(TensorCodec, EveryTypeAndBitPatternComesBack) {
  rc::check([](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const SafetensorsType type = all_types()[random() % all_types().size()];
    const std::size_t elements = random() % (random() % 4 == 0 ? 20000 : 300);
    std::string old_bytes = random_bytes(random, elements * static_cast<std::size_t>(safetensors_type_bytes(type)));
    if (random() % 4 == 0) std::fill(old_bytes.begin(), old_bytes.end(), static_cast<char>(random() % 3));  // one exponent alone
    if (type == SafetensorsType::bf16 && random() % 2) old_bytes = plain_bf16(random, static_cast<std::int64_t>(elements));
    const std::uint64_t every = std::uint64_t{1} << (random() % 14);
    const std::string new_bytes = random() % 8 == 0 ? old_bytes : changed_copy(random, type, old_bytes, every);
    const EncodedTensor encoded = encode_tensor(type, old_bytes, new_bytes);
    RC_ASSERT((encoded.codec == TensorCodec::same) == (old_bytes == new_bytes));
    RC_ASSERT(encoded.payload.size() <= new_bytes.size());
    RC_ASSERT(decoded(encoded, type, old_bytes, new_bytes) == new_bytes);
    std::string in_place = old_bytes;
    decode_tensor(encoded.codec, type, encoded.codec == TensorCodec::full ? new_bytes : encoded.payload, in_place, in_place);
    RC_ASSERT(in_place == new_bytes);
  });
}

TEST(TensorCodec, AllCodecsAreUsed) {
  std::mt19937_64 random(1);
  const std::string weights = plain_bf16(random, 50000);
  EXPECT_EQ(encode_tensor(SafetensorsType::bf16, weights, weights).codec, TensorCodec::same);
  EXPECT_EQ(encode_tensor(SafetensorsType::bf16, weights, changed_copy(random, SafetensorsType::bf16, weights, 200)).codec, TensorCodec::sparse);
  std::string moved = weights;  // every element by a step
  for (std::size_t i = 0; i < moved.size(); i += 2) moved[i] = static_cast<char>(moved[i] ^ 1);
  EXPECT_EQ(encode_tensor(SafetensorsType::bf16, weights, moved).codec, TensorCodec::planes);
  EXPECT_EQ(encode_tensor(SafetensorsType::bf16, weights, random_bytes(random, weights.size())).codec, TensorCodec::full);
  EXPECT_EQ(encode_tensor(SafetensorsType::bf16, std::nullopt, weights).codec, TensorCodec::full);
}

// A 4-bit, an 8-bit and a 16-bit tensor of which little changed take little room, and how much does not depend on where it is.
TEST(TensorCodec, LittleChangedIsSmall) {
  std::mt19937_64 random(2);
  for (const SafetensorsType type :
       {SafetensorsType::u8, SafetensorsType::i32, SafetensorsType::f8_e4m3, SafetensorsType::f16, SafetensorsType::bf16, SafetensorsType::f32}) {
    const std::string old_bytes = random_bytes(random, 400'000);
    const std::string new_bytes = changed_copy(random, type, old_bytes, 1000);
    const EncodedTensor encoded = encode_tensor(type, old_bytes, new_bytes);
    EXPECT_EQ(encoded.codec, TensorCodec::sparse) << safetensors_type_name(type);
    EXPECT_LT(static_cast<double>(encoded.payload.size()), 4.0 * static_cast<double>(encoded.changed) + 60) << safetensors_type_name(type);
    EXPECT_EQ(decoded(encoded, type, old_bytes, new_bytes), new_bytes);
  }
}

// Runs it with AVX2 alone, and with AVX-512 where the machine has it.
template <class F>
void with_each_instruction_set(const F& work) {
  const bool found = use_wide_word_classes(false);
  for (const bool wide : {false, found}) {
    SCOPED_TRACE(wide ? "AVX-512" : "AVX2");
    use_wide_word_classes(wide);
    work();
  }
  use_wide_word_classes(found);
}

// tests/golden/sync/payloads.json holds pairs with their payloads; LOCKSTEP_WRITE_GOLDEN=1 writes it anew, when the format's version changes.
TEST(TensorCodec, GoldenPayloadsAreMetAndRead) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/golden/sync/payloads.json";
  const auto hex = [](const std::string& bytes) { return fmt::format("{:02x}", fmt::join(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), "")); };
  const auto bytes_of = [](const std::string& text) {
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    return bytes;
  };
  if (std::getenv("LOCKSTEP_WRITE_GOLDEN")) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::mt19937_64 random(11);
    for (const SafetensorsType type : {SafetensorsType::bf16, SafetensorsType::f16, SafetensorsType::f32, SafetensorsType::f8_e4m3, SafetensorsType::f8_e5m2,
                                       SafetensorsType::u8, SafetensorsType::i32})
      for (const std::uint64_t every : {40, 1}) {
        const std::string old_bytes = type == SafetensorsType::bf16 ? plain_bf16(random, 600) : random_bytes(random, 600);
        std::string new_bytes = changed_copy(random, type, old_bytes, every);
        if (every == 1 && (type == SafetensorsType::bf16 || type == SafetensorsType::f32)) {  // small steps of all: planes
          new_bytes = old_bytes;
          for (std::size_t i = 0; i < new_bytes.size(); i += static_cast<std::size_t>(safetensors_type_bytes(type)))
            new_bytes[i] = static_cast<char>(new_bytes[i] ^ static_cast<char>(random() % 8));
        }
        const EncodedTensor encoded = encode_tensor(type, old_bytes, new_bytes);
        rows.push_back({{"dtype", safetensors_type_name(type)},
                        {"codec", codec_name(encoded.codec)},
                        {"old", hex(old_bytes)},
                        {"new", hex(new_bytes)},
                        {"payload", hex(encoded.payload)}});
      }
    // What the program reads and does not write: the first pair as `changes`.
    rows.push_back({{"dtype", rows[0]["dtype"]},
                    {"codec", "changes"},
                    {"old", rows[0]["old"]},
                    {"new", rows[0]["new"]},
                    {"payload", hex(changes_payload(2, bytes_of(rows[0]["old"]), bytes_of(rows[0]["new"])))}});
    write_file_atomic(path, rows.dump(1) + "\n");
  }
  const auto rows = nlohmann::json::parse(read_file(path, 1 << 20));
  std::set<std::string> codecs;
  ASSERT_EQ(rows.size(), 15u);
  with_each_instruction_set([&] {
    for (const auto& row : rows) {
      SafetensorsType type = SafetensorsType::f32;
      for (const SafetensorsType one : all_types())
        if (safetensors_type_name(one) == row["dtype"].get<std::string>()) type = one;
      const std::string old_bytes = bytes_of(row["old"]), new_bytes = bytes_of(row["new"]), payload = bytes_of(row["payload"]);
      codecs.insert(row["codec"].get<std::string>());
      if (row["codec"] == "changes") {
        EXPECT_EQ(decoded({TensorCodec::changes, payload}, type, old_bytes, new_bytes), new_bytes);
        EXPECT_EQ(changes_payload(static_cast<std::size_t>(safetensors_type_bytes(type)), old_bytes, new_bytes), payload);
        continue;
      }
      const EncodedTensor encoded = encode_tensor(type, old_bytes, new_bytes);
      EXPECT_EQ(codec_name(encoded.codec), row["codec"].get<std::string>());
      EXPECT_EQ(encoded.payload, payload) << row["dtype"];
      EXPECT_EQ(decoded(encoded, type, old_bytes, new_bytes), new_bytes);
    }
  });
  EXPECT_TRUE(codecs.contains("sparse") && codecs.contains("planes") && codecs.contains("changes"));
}

// Larger pairs, of all paths through classes: their payloads' hash was computed once and must be met by every machine.
TEST(TensorCodec, LargePayloadsHaveTheirHash) {
  with_each_instruction_set([] {
    std::mt19937_64 random(12);
    Sha256 hash;
    for (const std::uint64_t every : {2000, 250, 30, 3}) {
      const std::string old_bytes = plain_bf16(random, 100'001), new_bytes = changed_copy(random, SafetensorsType::bf16, old_bytes, every);
      const EncodedTensor encoded = encode_tensor(SafetensorsType::bf16, old_bytes, new_bytes);
      hash.update(encoded.payload);
      EXPECT_EQ(decoded(encoded, SafetensorsType::bf16, old_bytes, new_bytes), new_bytes);
    }
    EXPECT_EQ(hash.hex(), "b91beaf21c4c58420f65d4d3124a510ae2b1b974ed68d2c3aa78a2c081851313");
  });
}

TEST(TensorCodec, ChangesOfSimplePublishersAreRead) {
  rc::check([](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const SafetensorsType type = std::array{SafetensorsType::bf16, SafetensorsType::f32, SafetensorsType::u8}[random() % 3];
    const auto width = static_cast<std::size_t>(safetensors_type_bytes(type));
    const std::string old_bytes = random_bytes(random, (random() % 2000 + 1) * width);
    std::string new_bytes = old_bytes;
    for (std::size_t at = 0; at < old_bytes.size(); at += width)
      for (std::size_t i = 0; i < width && (i > 0 || random() % 50 == 0); ++i) new_bytes[at + i] = static_cast<char>(random());
    const std::string payload = changes_payload(width, old_bytes, new_bytes);
    std::string to(old_bytes.size(), 'x');
    decode_tensor(TensorCodec::changes, type, payload, old_bytes, to);
    RC_ASSERT(to == new_bytes);
    std::string in_place = old_bytes;
    decode_tensor(TensorCodec::changes, type, payload, in_place, in_place);
    RC_ASSERT(in_place == new_bytes);
    for (int fault = 0; fault < 20; ++fault) {
      std::string wrong = payload;
      if (random() % 2) wrong[random() % wrong.size()] ^= static_cast<char>(1u << (random() % 8));
      else wrong = random_bytes(random, random() % 100);
      try {
        decode_tensor(TensorCodec::changes, type, wrong, old_bytes, to);
      } catch (const Error& e) {
        RC_ASSERT(e.code() == ErrorCode::corrupt_file);
      }
    }
    RC_ASSERT(codec_named("changes") == TensorCodec::changes);
  });
}

TEST(TensorCodec, NoBytesAreMoreThanAnError) {
  rc::check([](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::string old_bytes = plain_bf16(random, static_cast<std::int64_t>(random() % 3000) + 1);
    const std::string new_bytes = changed_copy(random, SafetensorsType::bf16, old_bytes, 20);
    EncodedTensor encoded = encode_tensor(SafetensorsType::bf16, old_bytes, new_bytes);
    if (encoded.codec != TensorCodec::sparse && encoded.codec != TensorCodec::planes) return;
    const std::string right = encoded.payload;
    for (int fault = 0; fault < 30; ++fault) {
      encoded.payload = right;
      switch (random() % 4) {
        case 0:
          encoded.payload[random() % right.size()] ^= static_cast<char>(1u << (random() % 8));
          break;
        case 1:
          encoded.payload.resize(random() % right.size());
          break;
        case 2:
          encoded.payload += static_cast<char>(random());
          break;
        default:
          encoded.payload = random_bytes(random, random() % 200);
      }
      try {  // whatever is accepted gives values, which the digest of the result then refuses
        RC_ASSERT(decoded(encoded, SafetensorsType::bf16, old_bytes, new_bytes).size() == new_bytes.size());
      } catch (const Error& e) {
        RC_ASSERT(e.code() == ErrorCode::corrupt_file);
      }
    }
  });
}

TEST(TensorCodec, EveryWordHasAPlace) {
  for (const SafetensorsType type :
       {SafetensorsType::bf16, SafetensorsType::f16, SafetensorsType::f8_e4m3, SafetensorsType::f8_e5m2, SafetensorsType::i16, SafetensorsType::u8}) {
    const ElementKind kind = element_kind(type);
    std::vector<bool> seen(std::size_t{1} << (8 * kind.width));
    for (std::uint32_t word = 0; word < seen.size(); ++word) {
      const std::uint32_t place = order_of(kind, word);
      ASSERT_LT(place, seen.size());
      ASSERT_FALSE(seen[place]);
      seen[place] = true;
      ASSERT_EQ(word_at(kind, place), word);
      ASSERT_EQ(step_from(kind, place, static_cast<std::uint32_t>(step_between(kind, place, 7))), 7u);
    }
  }
}

}  // namespace
}  // namespace lockstep
