// The manifest of a snapshot: its files and tensors by digest, and where their bytes are in a store. Its text is canonical JSON (sorted keys, no
// spaces), whose SHA-256 is the snapshot's id. docs/weight-sync.md has every field. A manifest comes from strangers: read_manifest refuses unknown
// fields. Knows no store. Pure.
//   const SnapshotManifest manifest = read_manifest(text);   const std::string same = manifest_text(manifest);
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sync/folder_tensors.h"
#include "sync/tensor_codec.h"

namespace lockstep {

inline constexpr int kManifestVersion = 1;
inline constexpr std::size_t kMostManifestBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMostSnapshotFiles = 1000;
inline constexpr std::size_t kMostSnapshotFileBytes = std::size_t{256} << 20;  // of one file, which is held in memory whole

// A small file of the model beside its tensors, an object of its own: config.json, tokenizer.json, ...
struct SnapshotFile {
  std::string name, sha256;
  std::uint64_t bytes = 0;
};

struct SnapshotTensor {
  TensorShape shape;
  TensorCodec codec = TensorCodec::full;
  std::string base;                     // XXH3-128 of the parent's values of this tensor, in row-major order; empty for `full`, which needs no parent
  std::string result;                   // XXH3-128 of this snapshot's values
  std::string object;                   // SHA-256 of the object that holds the payload (the encoded values); empty where the payload has no bytes
  std::uint64_t offset = 0, bytes = 0;  // where in the object the payload begins, and its length
};

struct SnapshotManifest {
  std::string parent;   // id; empty: none
  std::string profile;  // digest (numerics/profile.h, 16 digits) of the numerics profile whose compute copy the values are; empty: not said
  std::vector<SnapshotFile> files;
  std::vector<SnapshotTensor> tensors;  // sorted by name
  const SnapshotTensor* find(std::string_view name) const;
  const SnapshotFile* file(std::string_view name) const;
  std::uint64_t full_bytes() const;     // of all tensors
  std::uint64_t payload_bytes() const;  // of tensors' payloads in this snapshot's objects
};

// SHA-256 over a snapshot's content, independent of its parents: files, and names, types, shapes and digests of tensors. Two snapshots with the same
// content (the end of a chain, and its squash) have the same digest.
std::string content_digest(const SnapshotManifest& manifest);

std::string manifest_text(const SnapshotManifest& manifest);
// Errors: corrupt_file for anything that manifest_text does not write; unsupported for another version.
SnapshotManifest read_manifest(std::string_view text);

// Whether a text consists of exactly `digits` lower-case hexadecimal digits: 64 for a SHA-256, 32 for an XXH3-128.
bool is_digest(std::string_view text, std::size_t digits);

}  // namespace lockstep
