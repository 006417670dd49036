#include "checkpoint/training_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/checkpoint_head.h"
#include "checkpoint/json_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/share_checkpoint.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr std::string_view kRemoved = ".removed";
constexpr std::size_t kHashedHere = std::size_t{1} << 16;  // bytes of which fewer are not worth a thread

struct Group {
  const char* prefix;
  WeightImages TrainingCheckpoint::*images;
  StatePart part;
};
constexpr Group kGroups[] = {{"master.", &TrainingCheckpoint::masters, StatePart::master},
                             {"m.", &TrainingCheckpoint::first_moments, StatePart::first_moment},
                             {"v.", &TrainingCheckpoint::second_moments, StatePart::second_moment}};

// Whether there are values for every parameter that the file tensor is made of.
bool has_values(const FileTensor& file, StatePart part, const StateSource& source) {
  std::size_t filled = 0;
  for (const Piece& piece : file.pieces) filled += source.has(part, static_cast<std::size_t>(piece.parameter));
  if (filled != 0 && filled != file.pieces.size()) fail(ErrorCode::internal, "only a part of '{}' has values", file.name);
  return filled != 0;
}

// Images of one part of the state, each held from the first tensor that needs it to the last.
class ImagesInUse {
 public:
  ImagesInUse(const Manifest& manifest, const Group& group, const StateSource& source)
      : manifest_(manifest), group_(group), source_(source), images_(manifest.parameters().size()), uses_(images_.size()) {}
  void expect(const FileTensor& file) {
    for (const Piece& piece : file.pieces) ++uses_[static_cast<std::size_t>(piece.parameter)];
  }
  void gather(const FileTensor& file, std::vector<float>& values) {
    for (const Piece& piece : file.pieces) {
      const auto id = static_cast<std::size_t>(piece.parameter);
      if (!images_[id].empty()) continue;
      images_[id] = source_.read(group_.part, id);
      if (static_cast<std::int64_t>(images_[id].size()) != manifest_.parameter(piece.parameter).size())
        fail(ErrorCode::internal, "the image of '{}{}' has {} elements, the parameter {}", group_.prefix, file.name, images_[id].size(),
             manifest_.parameter(piece.parameter).size());
    }
    values.resize(static_cast<std::size_t>(file.size()));
    manifest_.gather(file, images_, values.data());
    for (const Piece& piece : file.pieces)
      if (const auto id = static_cast<std::size_t>(piece.parameter); --uses_[id] == 0) std::vector<float>().swap(images_[id]);
  }

 private:
  const Manifest& manifest_;
  const Group& group_;
  const StateSource& source_;
  WeightImages images_;
  std::vector<std::size_t> uses_;
};

// The state as a safetensors stream; returns its SHA-256.
std::string write_state(const fs::path& path, const Manifest& manifest, const StateSource& source) {
  struct Origin {
    const FileTensor* file;
    ImagesInUse* images;
  };
  std::vector<SafetensorsWriter::Entry> entries;
  std::vector<ImagesInUse> in_use;
  in_use.reserve(std::size(kGroups));
  std::unordered_map<std::string, Origin> origins;
  for (const Group& group : kGroups) {
    ImagesInUse& images = in_use.emplace_back(manifest, group, source);
    for (const FileTensor& file : manifest.files()) {
      if (!has_values(file, group.part, source)) {
        if (group.part == StatePart::master) fail(ErrorCode::internal, "the master of '{}' is missing", file.name);
        continue;
      }
      images.expect(file);
      entries.push_back({group.prefix + file.name, SafetensorsType::f32, file.shape});
      origins.emplace(entries.back().name, Origin{&file, &images});
    }
  }
  AtomicFile out(path);
  Sha256 hash;
  SafetensorsWriter writer(
      [&](const void* data, std::size_t bytes) {  // hashed beside the writing: each of both takes about as long
        const std::future<void> hashed = std::async(bytes < kHashedHere ? std::launch::deferred : std::launch::async, [&] { hash.update(data, bytes); });
        out.write(data, bytes);
        hashed.wait();
      },
      std::move(entries), {});
  std::vector<float> values;
  std::size_t written = 0;
  for (const SafetensorsWriter::Entry& entry : writer.entries()) {
    const Origin& origin = origins.at(entry.name);
    origin.images->gather(*origin.file, values);
    writer.write(values);
    if (++written == (writer.entries().size() + 1) / 2) kill_point("checkpoint:write");
  }
  writer.finish();
  kill_point("checkpoint:fsync");
  out.commit();
  return hash.hex();
}

void read_state(const fs::path& path, const Manifest& manifest, const std::string& sha256, TrainingCheckpoint& checkpoint) {
  const SafetensorsFile state = SafetensorsFile::open(path);
  const std::string found_sha256 = state.sha256();
  if (found_sha256 != sha256) fail(ErrorCode::corrupt_file, "'{}' has the SHA-256 {}, state.json says {}", path.string(), found_sha256, sha256);
  std::size_t used = 0;
  std::vector<float> values;
  for (const Group& group : kGroups) {
    WeightImages& images = checkpoint.*group.images;
    images.assign(manifest.parameters().size(), {});
    for (const FileTensor& tensor : manifest.files()) {
      const SafetensorsTensor* found = state.find(group.prefix + tensor.name);
      if (!found) {
        if (group.images == &TrainingCheckpoint::masters)
          fail(ErrorCode::corrupt_file, "'{}' lacks the tensor '{}{}'", path.string(), group.prefix, tensor.name);
        continue;
      }
      if (found->shape != tensor.shape || found->type != SafetensorsType::f32)
        fail(ErrorCode::corrupt_file, "'{}': tensor '{}' is {} {}, the model says F32 {}", path.string(), found->name, safetensors_type_name(found->type),
             shape_text(found->shape), shape_text(tensor.shape));
      values.resize(static_cast<std::size_t>(tensor.size()));
      state.read(*found, values);
      manifest.scatter(tensor, values.data(), images);
      ++used;
    }
  }
  if (used != state.tensors().size())
    for (const SafetensorsTensor& tensor : state.tensors()) {
      const auto known = [&](const FileTensor& t) {
        return std::any_of(std::begin(kGroups), std::end(kGroups), [&](const Group& g) { return tensor.name == g.prefix + t.name; });
      };
      if (std::none_of(manifest.files().begin(), manifest.files().end(), known))
        fail(ErrorCode::corrupt_file, "'{}' has the tensor {}, which the model does not know", path.string(), quoted_name(tensor.name));
    }
  for (std::size_t i = 0; i < checkpoint.first_moments.size(); ++i)
    if (checkpoint.first_moments[i].size() != checkpoint.second_moments[i].size())
      fail(ErrorCode::corrupt_file, "'{}' has one of the two moments of '{}', allowed are both or none", path.string(), manifest.parameters()[i].name);
}

// The whole of a state that ranks have written in shares; a moment that the optimizer has not kept is zeros, as in a whole file.
void read_shares(const fs::path& folder, const Manifest& manifest, TrainingCheckpoint& checkpoint) {
  ShareCheckpoint shares(folder, manifest);
  for (const Group& group : kGroups) {
    WeightImages& images = checkpoint.*group.images;
    images.assign(manifest.parameters().size(), {});
    for (std::size_t i = 0; i < images.size(); ++i) {
      const auto id = static_cast<ParameterId>(i);
      const bool moments = shares.has(StatePart::first_moment, id) || shares.has(StatePart::second_moment, id);
      if (group.part == StatePart::master || moments) images[i] = shares.read(group.part, all_rows_of(manifest.parameter(id), id));
    }
  }
}

CheckpointHead head_of(const TrainingCheckpoint& checkpoint) {
  return {.step = checkpoint.step, .profile_digest = checkpoint.profile_digest, .config_hash = checkpoint.config_hash, .position = checkpoint.position};
}

// -1: not the name of a checkpoint.
std::int64_t step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix)) return -1;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  if (std::from_chars(name.data() + prefix.size(), end, step).ptr != end || step < 0 || checkpoint_name(step) != name) return -1;
  return step;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) names.push_back(entry->path().filename());
  return names;
}

// Removal is best effort: leftovers cost disk, not correctness. A folder is renamed first, so that a crash in the
// middle never leaves half of one under a valid name.
void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  fs::path doomed = folder;
  doomed += kRemoved;
  fs::rename(folder, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) log_warning("an old checkpoint could not be removed", {{"path", folder.string()}, {"error", error.message()}});
}

// Removes what a killed process left half written or half removed.
void remove_leftovers(const fs::path& checkpoints) {
  std::error_code error;
  for (const std::string& name : names_in(checkpoints))
    if (name.starts_with("step-") && (name.ends_with(kRemoved) || name.ends_with(".partial"))) fs::remove_all(checkpoints / name, error);
}

void prune(const fs::path& checkpoints, std::int64_t saved_step, int keep_last) {
  remove_leftovers(checkpoints);
  std::vector<std::int64_t> steps = checkpoint_steps(checkpoints);
  std::reverse(steps.begin(), steps.end());
  int kept = 0;
  for (const std::int64_t step : steps)
    if (step > saved_step || (keep_last > 0 && ++kept > keep_last)) remove_checkpoint(checkpoints / checkpoint_name(step));
}
}  // namespace

std::vector<std::int64_t> checkpoint_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(checkpoints))
    if (const std::int64_t step = step_of(name); step >= 0) steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::int64_t checkpoint_write_bytes(const Manifest& manifest) {
  std::vector<const FileTensor*> files;  // in the order of the writer: by name
  for (const FileTensor& file : manifest.files()) files.push_back(&file);
  std::sort(files.begin(), files.end(), [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; });
  std::vector<std::size_t> uses(manifest.parameters().size());
  std::vector<bool> there(uses.size());
  for (const FileTensor* file : files)
    for (const Piece& piece : file->pieces) ++uses[static_cast<std::size_t>(piece.parameter)];
  const auto bytes_of = [&](std::size_t id) { return manifest.parameters()[id].size() * static_cast<std::int64_t>(sizeof(float)); };
  std::int64_t images = 0, values = 0, most = 0;
  for (const FileTensor* file : files) {
    for (const Piece& piece : file->pieces)
      if (const auto id = static_cast<std::size_t>(piece.parameter); !there[id]) there[id] = true, images += bytes_of(id);
    values = std::max(values, file->size() * static_cast<std::int64_t>(sizeof(float)));  // kept for the next one
    most = std::max(most, images + values);
    for (const Piece& piece : file->pieces)
      if (const auto id = static_cast<std::size_t>(piece.parameter); --uses[id] == 0) images -= bytes_of(id);
  }
  return most;
}

fs::path save_checkpoint(const fs::path& checkpoints, const Manifest& manifest, const TrainingCheckpoint& checkpoint, const CheckpointOptions& options) {
  const auto images = [&](StatePart part) -> const WeightImages& {
    return part == StatePart::master ? checkpoint.masters : part == StatePart::first_moment ? checkpoint.first_moments : checkpoint.second_moments;
  };
  return save_checkpoint(checkpoints, manifest, checkpoint,
                         {[&](StatePart part, std::size_t i) { return i < images(part).size() && !images(part)[i].empty(); },
                          [&](StatePart part, std::size_t i) { return images(part)[i]; }},
                         options);
}

fs::path save_checkpoint(const fs::path& checkpoints, const Manifest& manifest, const TrainingCheckpoint& checkpoint, const StateSource& source,
                         const CheckpointOptions& options) {
  const fs::path path = checkpoints / checkpoint_name(checkpoint.step);
  with_context(fmt::format("saving the checkpoint '{}'; earlier ones are intact", path.string()), [&] {
    AtomicFolder folder(path, AtomicFolder::Existing::replace);
    Json more = Json::object();
    more["state_sha256"] = write_state(folder.partial() / "state.safetensors", manifest, source);
    write_checkpoint_head(folder.partial(), head_of(checkpoint), more);
    publish_checkpoint(folder, checkpoints, checkpoint.step, options);
  });
  return path;
}

fs::path publish_checkpoint(AtomicFolder& folder, const fs::path& checkpoints, std::int64_t step, const CheckpointOptions& options) {
  folder.commit();
  kill_point("checkpoint:rename");
  write_file_atomic(checkpoints / "latest", checkpoint_name(step) + "\n");
  prune(checkpoints, step, options.keep_last);
  return checkpoints / checkpoint_name(step);
}

TrainingCheckpoint load_checkpoint(const fs::path& folder, const Manifest& manifest) {
  return with_context(fmt::format("reading the checkpoint '{}'", folder.string()), [&] {
    const CheckpointHead head = read_checkpoint_head(folder);
    TrainingCheckpoint checkpoint;
    checkpoint.step = head.step;
    checkpoint.profile_digest = head.profile_digest;
    checkpoint.config_hash = head.config_hash;
    checkpoint.position = head.position;
    if (head.in_shares()) read_shares(folder, manifest, checkpoint);
    else read_state(folder / "state.safetensors", manifest, head.json.at("state_sha256").get<std::string>(), checkpoint);
    return checkpoint;
  });
}

bool use_latest_checkpoint(const fs::path& checkpoints, const std::function<void(const fs::path&)>& use, std::vector<std::string>& notes) {
  remove_leftovers(checkpoints);  // a run that had only to end saves nothing more, and prunes nothing
  std::vector<std::int64_t> steps = checkpoint_steps(checkpoints);
  const auto note = [&](std::string text) {
    log_warning(text);
    notes.push_back(std::move(text));
  };
  std::error_code error;
  const fs::path latest = checkpoints / "latest";
  if (fs::exists(latest, error)) {
    std::string name;
    try {
      name = read_file(latest, 100);
    } catch (const Error& e) {
      note(fmt::format("{}; the newest valid checkpoint is used", e.what()));
    }
    if (name.ends_with('\n')) name.pop_back();
    const auto named = std::find(steps.begin(), steps.end(), step_of(name));
    if (named != steps.end()) {
      std::rotate(named, named + 1, steps.end());  // to the end: it is tried first
    } else if (notes.empty()) {
      note(fmt::format("'{}' names no checkpoint that is there; the newest valid one is used", latest.string()));
    }
  }
  if (steps.empty()) return false;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path folder = checkpoints / checkpoint_name(*step);
    try {
      use(folder);
      return true;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::not_found && e.code() != ErrorCode::resource_exhausted) throw;
      note(fmt::format("the checkpoint '{}' is passed over: {}", folder.string(), e.message()));
    }
  }
  fail(ErrorCode::corrupt_file, "none of the {} checkpoints in '{}' is valid; the newest: {}", steps.size(), checkpoints.string(), notes.back());
}

std::optional<LoadedCheckpoint> load_latest_checkpoint(const fs::path& checkpoints, const Manifest& manifest) {
  LoadedCheckpoint loaded;
  const auto load = [&](const fs::path& folder) {
    loaded.checkpoint = load_checkpoint(folder, manifest);
    loaded.folder = folder;
  };
  if (!use_latest_checkpoint(checkpoints, load, loaded.notes)) return {};
  return loaded;
}

}  // namespace lockstep
