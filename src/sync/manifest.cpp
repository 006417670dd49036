#include "sync/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {
using Sorted = nlohmann::json;  // keys in the order of their bytes, which is what makes the text canonical

Sorted text_or_null(const std::string& text) { return text.empty() ? Sorted() : Sorted(text); }

Sorted content_of(const SnapshotTensor& tensor) {
  return {{"dtype", safetensors_type_name(tensor.shape.type)}, {"name", tensor.shape.name}, {"result", tensor.result}, {"shape", tensor.shape.shape}};
}
Sorted content_of(const std::vector<SnapshotFile>& files) {
  Sorted list = Sorted::array();
  for (const SnapshotFile& file : files) list.push_back({{"bytes", file.bytes}, {"name", file.name}, {"sha256", file.sha256}});
  return list;
}

template <class... A>
[[noreturn]] void refuse_manifest(fmt::format_string<A...> format, A&&... args) {
  fail(ErrorCode::corrupt_file, "the manifest {}", fmt::format(format, std::forward<A>(args)...));
}

// One object of the manifest: each field is asked for once, and no others are there.
class Fields {
 public:
  Fields(const Sorted& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) refuse_manifest("has {} where {} is to be an object", json.type_name(), place_);
  }
  const Sorted& at(const char* name) {
    const auto found = json_.find(name);
    if (found == json_.end()) refuse_manifest("lacks '{}' of {}", name, place_);
    ++asked_;
    return *found;
  }
  std::string text(const char* name) {
    const Sorted& value = at(name);
    if (!value.is_string()) refuse_manifest("has {} as '{}' of {}, allowed is a text", value.type_name(), name, place_);
    return value.get<std::string>();
  }
  std::string digest(const char* name, std::size_t digits, bool or_none) {
    const Sorted& value = at(name);
    if (or_none && value.is_null()) return {};
    if (!value.is_string() || !is_digest(value.get_ref<const std::string&>(), digits))
      refuse_manifest("has '{}' of {}, allowed are {} lower-case hexadecimal digits{}", name, place_, digits, or_none ? " or null" : "");
    return value.get<std::string>();
  }
  std::uint64_t number(const char* name) {
    const Sorted& value = at(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
      refuse_manifest("has {} as '{}' of {}, allowed is a whole number from 0", value.dump().substr(0, 40), name, place_);
    return value.get<std::uint64_t>();
  }
  void finish() const {
    if (asked_ != json_.size()) refuse_manifest("has fields of {} that are not known", place_);
  }

 private:
  const Sorted& json_;
  std::string place_;
  std::size_t asked_ = 0;
};

// A name that is a file of one folder, whatever the system.
bool is_file_name(const std::string& name) {
  if (name.empty() || name.size() > 128 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'; });
}

SafetensorsType type_named(const std::string& name, const std::string& tensor) {
  for (int i = 0; i <= static_cast<int>(SafetensorsType::u64); ++i)
    if (safetensors_type_name(static_cast<SafetensorsType>(i)) == name) return static_cast<SafetensorsType>(i);
  fail(ErrorCode::unsupported, "the manifest has the dtype {} of tensor {}, which is not known here", quoted_name(name), quoted_name(tensor));
}

SnapshotTensor read_tensor(const Sorted& json) {
  SnapshotTensor tensor;
  Fields fields(json, "a tensor");
  tensor.shape.name = fields.text("name");
  const std::string place = "tensor " + quoted_name(tensor.shape.name);
  if (tensor.shape.name == "__metadata__") refuse_manifest("has the tensor name '__metadata__', which is no tensor's in a safetensors file");
  Fields rest(json, place);
  tensor.shape.type = type_named(rest.text("dtype"), tensor.shape.name);
  const Sorted& shape = rest.at("shape");
  if (!shape.is_array() || shape.size() > 16) refuse_manifest("has a shape of {} that is no list of at most 16 sizes", place);
  std::uint64_t bytes = static_cast<std::uint64_t>(safetensors_type_bytes(tensor.shape.type));
  for (const Sorted& size : shape) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
      refuse_manifest("has a size of {} that is no whole number from 0", place);
    tensor.shape.shape.push_back(size.get<std::int64_t>());
    if (__builtin_mul_overflow(bytes, size.get<std::uint64_t>(), &bytes) || bytes > static_cast<std::uint64_t>(INT64_MAX))
      refuse_manifest("has a shape of {} whose bytes overflow", place);
  }
  tensor.shape.bytes = bytes;
  const std::string codec = rest.text("codec");
  const auto known = codec_named(codec);
  if (!known) fail(ErrorCode::unsupported, "the manifest has the codec {} of {}, known are same, sparse, planes, full, changes", quoted_name(codec), place);
  tensor.codec = *known;
  tensor.base = rest.digest("base", 32, true);
  tensor.result = rest.digest("result", 32, false);
  tensor.object = rest.digest("object", 64, true);
  tensor.offset = rest.number("offset");
  tensor.bytes = rest.number("bytes");
  rest.at("name");
  rest.finish();
  if (tensor.base.empty() != (tensor.codec == TensorCodec::full))
    refuse_manifest("has {} that is {} and {} a base", place, codec, tensor.base.empty() ? "lacks" : "has");
  if (tensor.object.empty() != (tensor.bytes == 0) || (tensor.object.empty() && tensor.offset != 0))
    refuse_manifest("has {} with a payload of {} bytes at {} and {} object", place, tensor.bytes, tensor.offset, tensor.object.empty() ? "no" : "an");
  const bool fits = tensor.codec == TensorCodec::full   ? tensor.bytes == bytes
                    : tensor.codec == TensorCodec::same ? tensor.bytes == 0 && tensor.base == tensor.result
                                                        : tensor.bytes > 0 && tensor.bytes <= bytes;
  if (!fits) refuse_manifest("has {} of {} bytes with a {} payload of {}", place, bytes, codec, tensor.bytes);
  if (tensor.offset > static_cast<std::uint64_t>(INT64_MAX) - tensor.bytes) refuse_manifest("has a payload of {} that ends beyond 2^63", place);
  return tensor;
}
}  // namespace

bool is_digest(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const SnapshotTensor* SnapshotManifest::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors.begin(), tensors.end(), name, [](const SnapshotTensor& t, std::string_view wanted) { return t.shape.name < wanted; });
  return found != tensors.end() && found->shape.name == name ? &*found : nullptr;
}
const SnapshotFile* SnapshotManifest::file(std::string_view name) const {
  for (const SnapshotFile& one : files)
    if (one.name == name) return &one;
  return nullptr;
}
std::uint64_t SnapshotManifest::full_bytes() const {
  std::uint64_t bytes = 0;
  for (const SnapshotTensor& tensor : tensors) bytes += tensor.shape.bytes;
  return bytes;
}
std::uint64_t SnapshotManifest::payload_bytes() const {
  std::uint64_t bytes = 0;
  for (const SnapshotTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

std::string content_digest(const SnapshotManifest& manifest) {
  Sorted tensors = Sorted::array();
  for (const SnapshotTensor& tensor : manifest.tensors) tensors.push_back(content_of(tensor));
  return sha256_hex(Sorted{{"files", content_of(manifest.files)}, {"profile", text_or_null(manifest.profile)}, {"tensors", std::move(tensors)}}.dump());
}

std::string manifest_text(const SnapshotManifest& manifest) {
  const auto digest_of = [&](const char* name) {
    const SnapshotFile* file = manifest.file(name);
    return text_or_null(file ? file->sha256 : std::string());
  };
  Sorted tensors = Sorted::array();
  for (const SnapshotTensor& tensor : manifest.tensors) {
    Sorted json = content_of(tensor);
    json["base"] = text_or_null(tensor.base);
    json["bytes"] = tensor.bytes;
    json["codec"] = codec_name(tensor.codec);
    json["object"] = text_or_null(tensor.object);
    json["offset"] = tensor.offset;
    tensors.push_back(std::move(json));
  }
  return Sorted{{"config", digest_of("config.json")}, {"content", content_digest(manifest)},      {"files", content_of(manifest.files)},
                {"format", "lockstep-snapshot"},      {"parent", text_or_null(manifest.parent)},  {"profile", text_or_null(manifest.profile)},
                {"tensors", std::move(tensors)},      {"tokenizer", digest_of("tokenizer.json")}, {"version", kManifestVersion}}
      .dump();
}

SnapshotManifest read_manifest(std::string_view text) {
  if (text.size() > kMostManifestBytes) refuse_manifest("has {} bytes, allowed are {}", text.size(), kMostManifestBytes);
  Sorted json;
  try {
    json = read_json(text, {.key_comparisons = 200'000'000});
  } catch (const Error& e) {
    refuse_manifest("{}", e.message());
  }
  Fields fields(json, "the snapshot");
  if (fields.text("format") != "lockstep-snapshot") refuse_manifest("is of another format than lockstep-snapshot");
  if (const std::uint64_t version = fields.number("version"); version != kManifestVersion)
    fail(ErrorCode::unsupported, "the manifest has version {}, this program reads {}; a newer lockstep may read it", version, kManifestVersion);
  SnapshotManifest manifest;
  manifest.parent = fields.digest("parent", 64, true);
  manifest.profile = fields.digest("profile", 16, true);
  fields.digest("config", 64, true);
  fields.digest("tokenizer", 64, true);
  fields.digest("content", 64, false);
  const Sorted &files = fields.at("files"), &tensors = fields.at("tensors");
  if (!files.is_array() || !tensors.is_array()) refuse_manifest("has 'files' or 'tensors' that are no lists");
  if (files.size() > kMostSnapshotFiles) refuse_manifest("has {} small files, allowed are {}", files.size(), kMostSnapshotFiles);
  for (const Sorted& one : files) {
    Fields of_file(one, "a file");
    SnapshotFile file{of_file.text("name"), of_file.digest("sha256", 64, false), of_file.number("bytes")};
    of_file.finish();
    if (!is_file_name(file.name) || file.name.ends_with(".safetensors") || file.name == "model.safetensors.index.json")
      refuse_manifest("has the file name {}; allowed are names of a model's small files", quoted_name(file.name));
    if (file.bytes > kMostSnapshotFileBytes)
      refuse_manifest("has the file {} of {} bytes, allowed are {}", quoted_name(file.name), file.bytes, kMostSnapshotFileBytes);
    if (!manifest.files.empty() && manifest.files.back().name >= file.name) refuse_manifest("has files that are not sorted by name, each once");
    manifest.files.push_back(std::move(file));
  }
  for (const Sorted& one : tensors) {
    SnapshotTensor tensor = read_tensor(one);
    if (!manifest.tensors.empty() && manifest.tensors.back().shape.name >= tensor.shape.name)
      refuse_manifest("has tensors that are not sorted by name, each once");
    if (manifest.parent.empty() && tensor.codec != TensorCodec::full)
      refuse_manifest("has no parent, and tensor {} is coded against one", quoted_name(tensor.shape.name));
    manifest.tensors.push_back(std::move(tensor));
  }
  std::uint64_t all = 0;
  for (const SnapshotTensor& tensor : manifest.tensors)
    if (__builtin_add_overflow(all, tensor.shape.bytes, &all) || all > static_cast<std::uint64_t>(INT64_MAX))
      refuse_manifest("has tensors whose bytes overflow");
  fields.finish();
  // One text for one snapshot: digests that follow from the rest, the order of keys, spaces and twice-named keys are all in this.
  if (manifest_text(manifest) != text) refuse_manifest("is not written as it has to be, or a digest in it is not that of its content");
  return manifest;
}

}  // namespace lockstep
