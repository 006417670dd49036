// A manifest has one text; any other is refused.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "sync/channel.h"
#include "sync/manifest.h"

namespace lockstep {
namespace {

SnapshotManifest small_manifest() {
  const std::string x(32, 'a'), y(32, 'b'), object(64, 'c');
  SnapshotManifest manifest;
  manifest.parent = std::string(64, '1');
  manifest.files = {{"config.json", std::string(64, 'd'), 10}, {"tokenizer.json", std::string(64, 'e'), 20}};
  manifest.tensors = {{{"a", SafetensorsType::bf16, {4, 8}, 64}, TensorCodec::sparse, x, y, object, 0, 9},
                      {{"b \"\xc3\xa9", SafetensorsType::f32, {}, 4}, TensorCodec::full, "", y, object, 9, 4},
                      {{"c", SafetensorsType::u8, {3}, 3}, TensorCodec::same, x, x, "", 0, 0}};
  return manifest;
}

TEST(SnapshotManifests, ComesBack) {
  const std::string text = manifest_text(small_manifest());
  const SnapshotManifest read = read_manifest(text);
  EXPECT_EQ(manifest_text(read), text);
  EXPECT_EQ(read.tensors.size(), 3u);
  EXPECT_EQ(read.find("c")->codec, TensorCodec::same);
  EXPECT_EQ(read.full_bytes(), 71u);
  EXPECT_EQ(read.payload_bytes(), 13u);
  EXPECT_EQ(text.find(' '), text.find(" \\\"") == std::string::npos ? std::string::npos : text.find(" \\\""));  // no space but that of a name
}

// The id of a snapshot is this text's hash: it may never change for one version.
TEST(SnapshotManifests, HasItsPublishedHash) {
  EXPECT_EQ(sha256_hex(manifest_text(small_manifest())), "a73b28b49a1acd11e32157b3d7016abd64708683d4e05501b12412ab30e96e92");
}

TEST(SnapshotManifests, ContentIsWhatItIsAndNotHowItCame) {
  SnapshotManifest one = small_manifest(), two = one;
  two.parent = "";
  for (SnapshotTensor& tensor : two.tensors) {
    tensor.codec = TensorCodec::full;
    tensor.base = "";
    tensor.object = std::string(64, 'f');
    tensor.bytes = tensor.shape.bytes;
  }
  EXPECT_EQ(content_digest(one), content_digest(two));
  EXPECT_NE(manifest_text(one), manifest_text(two));
  two.tensors[0].result[0] = '0';
  EXPECT_NE(content_digest(one), content_digest(two));
}

TEST(SnapshotManifests, RefusesWhatItDoesNotWrite) {
  const auto refused = [](const std::string& text, std::string_view with) {
    try {
      read_manifest(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::corrupt_file || e.code() == ErrorCode::unsupported) << e.what();
      EXPECT_NE(std::string(e.what()).find(with), std::string::npos) << e.what();
    }
  };
  const auto changed = [](auto change) {
    nlohmann::json json = nlohmann::json::parse(manifest_text(small_manifest()));
    change(json);
    return json.dump();
  };
  refused("", "is not JSON");
  refused("[]", "to be an object");
  refused(manifest_text(small_manifest()) + " ", "not written as it has to be");
  refused(changed([](auto& j) { j["version"] = 2; }), "version 2");
  refused(changed([](auto& j) { j["more"] = 2; }), "not known");
  refused(changed([](auto& j) { j["config"] = std::string(64, '0'); }), "not that of its content");
  refused(changed([](auto& j) { j["content"] = std::string(64, '0'); }), "not that of its content");
  refused(changed([](auto& j) { j["parent"] = nullptr; }), "coded against one");
  refused(changed([](auto& j) { j["parent"] = "abc"; }), "64 lower-case");
  refused(changed([](auto& j) { j["files"][0]["name"] = "../x"; }), "the file name '../x'");
  refused(changed([](auto& j) { j["files"][0]["name"] = "model.safetensors"; }), "the file name");
  refused(changed([](auto& j) { j["files"] = std::vector<nlohmann::json>(1001, j["files"][0]); }), "1001 small files");
  refused(changed([](auto& j) { j["files"][0]["bytes"] = kMostSnapshotFileBytes + 1; }), "of 268435457 bytes, allowed are 268435456");
  refused(changed([](auto& j) { j["tensors"][0]["name"] = "__metadata__"; }), "'__metadata__'");
  refused(changed([](auto& j) { j["tensors"][0]["codec"] = "pickle"; }), "codec 'pickle'");
  refused(changed([](auto& j) { j["tensors"][0]["bytes"] = 65; }), "with a sparse payload of 65");
  refused(changed([](auto& j) { j["tensors"][1]["bytes"] = 3; }), "with a full payload of 3");
  refused(changed([](auto& j) { j["tensors"][0]["base"] = nullptr; }), "lacks a base");
  refused(changed([](auto& j) { j["tensors"][0]["offset"] = -1; }), "'offset'");
  refused(changed([](auto& j) { j["tensors"][0]["offset"] = std::uint64_t{1} << 63; }), "'offset'");
  refused(changed([](auto& j) { j["tensors"][0]["shape"] = {1LL << 40, 1LL << 40}; }), "overflow");
  refused(changed([](auto& j) { std::swap(j["tensors"][0], j["tensors"][1]); }), "sorted");
  refused(changed([](auto& j) { j["tensors"][1] = j["tensors"][0]; }), "sorted");
}

TEST(SnapshotManifests, NoBytesAreMoreThanAnError) {
  const std::string right = manifest_text(small_manifest());
  rc::check([&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string text = right;
    for (int i = 0; i < 1 + static_cast<int>(random() % 3); ++i) text[random() % text.size()] = static_cast<char>(random());
    if (text == right) return;
    try {
      RC_ASSERT(manifest_text(read_manifest(text)) == text);  // another snapshot, which has another id
    } catch (const Error& e) {
      RC_ASSERT(e.code() == ErrorCode::corrupt_file || e.code() == ErrorCode::unsupported);
    }
  });
}

TEST(Channel, HasOneText) {
  const Channel channel{7, std::string(64, 'a'), "staged"};
  EXPECT_EQ(channel_text(channel), "{\"sequence\":7,\"target\":\"" + std::string(64, 'a') + "\",\"transition\":\"staged\"}");
  EXPECT_EQ(parse_channel(channel_text(channel)).sequence, 7u);
  for (const std::string text : {"", "{}", "[1]", "{\"sequence\":0,\"target\":\"aa\",\"transition\":\"staged\"}"}) EXPECT_THROW(parse_channel(text), Error);
  EXPECT_THROW(parse_channel(channel_text(channel) + " "), Error);
  EXPECT_TRUE(is_channel_name("chat-v1.2_x"));
  for (const std::string& name : {std::string(), std::string("../x"), std::string(".x"), std::string("a b"), std::string(65, 'a'), std::string(64, 'a')})
    EXPECT_FALSE(is_channel_name(name)) << name;
}

}  // namespace
}  // namespace lockstep
