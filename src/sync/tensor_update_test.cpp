// A tensor that is decoded, encoded and compared part by part has the bytes, payloads and digests of one that is handled whole; what is damaged on the way
// is named.
#include "sync/tensor_update.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>

#include "base/error.h"
#include "base/hash.h"
#include "sync/codec_test_tools.h"
#include "sync/sparse_codec.h"

namespace lockstep {
namespace {

std::string digest_hex(const std::string& bytes) { return xxh3_128_hex(bytes.data(), bytes.size()); }

// Calls f(first byte, bytes) for parts of a multiple of 256 elements, and the rest.
template <class F>
void in_parts(std::mt19937_64& random, std::size_t bytes, std::size_t width, const F& f) {
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t part = std::min(bytes - at, 256 * width * (1 + random() % 40));
    f(at, part);
    at += part;
  }
}

// What another trainer's publisher writes (docs/weight-sync.md, `changes`), of tensors with few elements.
std::string changes_payload(const std::string& before, const std::string& now, std::size_t width) {
  std::string gaps, words;
  std::size_t count = 0, gap = 0;
  const auto varint = [](std::string& to, std::size_t value) {
    for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
    to += static_cast<char>(value);
  };
  for (std::size_t at = 0; at < now.size(); at += width, ++gap) {
    if (now.compare(at, width, before, at, width) == 0) continue;
    varint(gaps, gap);
    words += now.substr(at, width);
    ++count;
    gap = static_cast<std::size_t>(-1);
  }
  std::string payload;
  varint(payload, count);
  varint(payload, gaps.size());
  return payload + gaps + words;
}

TEST(TensorUpdate, PartsAreTheWhole) {
  rc::check([](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::vector<SafetensorsType> types = {SafetensorsType::bf16, SafetensorsType::f32, SafetensorsType::f16, SafetensorsType::f8_e4m3};
    const SafetensorsType type = types[random() % types.size()];
    const auto width = static_cast<std::size_t>(safetensors_type_bytes(type));
    const std::size_t elements = random() % 40000;
    std::string first = random_bytes(random, elements * width);
    if (type == SafetensorsType::bf16) first = plain_bf16(random, static_cast<std::int64_t>(elements));
    const std::string second = changed_copy(random, type, first, std::uint64_t{1} << (random() % 12));
    const std::string third = changed_copy(random, type, second, 100);
    TensorUpdate update({"w", type, {static_cast<std::int64_t>(elements)}, first.size()}, "STORE");
    EncodedTensor one = encode_tensor(type, first, second);
    update.add("one", one.codec, one.codec == TensorCodec::full ? second : one.payload, "object", digest_hex(second));
    update.add("two", TensorCodec::changes, changes_payload(second, third, width), "object", digest_hex(third));
    std::string now = first;
    RunningDigest digest;
    in_parts(random, now.size(), width, [&](std::size_t at, std::size_t bytes) {
      update.next(now.data() + at, bytes);
      digest.update(now.data() + at, bytes);
    });
    update.finish();
    RC_ASSERT(now == third);
    RC_ASSERT(digest.hex() == digest_hex(third));
    // The same payload where the changes alone are known.
    ElementChanges changes;
    for (std::size_t i = 0; i < elements; ++i)
      if (first.compare(i * width, width, second, i * width, width) != 0) {
        std::uint32_t word = 0;
        std::memcpy(&word, second.data() + i * width, width);
        changes.positions.push_back(static_cast<std::int64_t>(i)), changes.words.push_back(word);
      }
    if (std::ssize(changes.positions) > static_cast<std::int64_t>(elements) / kFewChanges) return;
    const EncodedTensor known = encode_tensor(type, first, changes);
    RC_ASSERT(known.codec == one.codec);
    RC_ASSERT(known.payload == one.payload);
    RC_ASSERT(known.changed == one.changed);
  });
}

std::string refused(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_file);
    return e.what();
  }
  return {};
}

TEST(TensorUpdate, WhatIsDamagedIsNamed) {
  std::mt19937_64 random(5);
  const std::string before = plain_bf16(random, 5000), now = changed_copy(random, SafetensorsType::bf16, before, 50);
  const EncodedTensor encoded = encode_tensor(SafetensorsType::bf16, before, now);
  ASSERT_EQ(encoded.codec, TensorCodec::sparse);
  const auto update = [&](const std::string& base, const std::string& payload, const std::string& result, std::size_t end) {
    return refused([&] {
      TensorUpdate one({"w", SafetensorsType::bf16, {5000}, before.size()}, "STORE");
      one.add("0123456789abcdef", TensorCodec::sparse, payload, "object", result);
      std::string bytes = base;
      one.next(bytes.data(), 512 * 2);
      one.next(bytes.data() + 512 * 2, end - 512 * 2);
      one.finish();
    });
  };
  EXPECT_EQ(update(before, encoded.payload, digest_hex(now), before.size()), "");
  EXPECT_NE(update(before, encoded.payload, digest_hex(before), before.size()).find(digest_hex(now)), std::string::npos);
  std::string other = before;
  other.back() = static_cast<char>(other.back() ^ 1);
  EXPECT_NE(update(other, encoded.payload, digest_hex(now), before.size()).find("0123456789ab"), std::string::npos);
  const std::string told = update(before, encoded.payload + '\0', digest_hex(now), before.size());
  EXPECT_NE(told.find("STORE"), std::string::npos) << told;
  EXPECT_NE(told.find("none ("), std::string::npos) << told;
}

}  // namespace
}  // namespace lockstep
