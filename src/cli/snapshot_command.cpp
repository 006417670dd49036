// `lockstep snapshot push|pull|show|diff|verify|squash|mirror|prune`: weights that travel (src/sync/).
#include <cstdio>
#include <memory>

#include "cli/command_kinds.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/far_options.h"
#include "cli/shipped.h"
#include "observe/progress.h"
#include "sync/channel.h"
#include "sync/snapshot_check.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

// Options that all kinds have.
struct Common {
  std::string store;
  std::int64_t threads = 2;
  bool json = false, quiet = false;
};
constexpr const char kStoreHelp[] = "Folder that holds snapshots, or http://HOST/PATH, https://, s3://BUCKET/PREFIX";
constexpr const char kSnapshotHelp[] = "Snapshot: its id, the first digits of it, or the name of a channel";

void add_store(OptionTable& table, Common& common) { table.positional("STORE", &common.store, true, kStoreHelp); }
void add_work_options(OptionTable& table, Common& common) {
  table.integer("threads", &common.threads, 1, 1024, "N", "Threads over tensors; no byte depends on it");
  table.flag("quiet", &common.quiet, "Show no progress");
}

// A display of tensors done and megabytes a second.
class TensorDisplay {
 public:
  TensorDisplay(std::string label, const Common& common) : label_(std::move(label)), quiet_(common.quiet || common.json) {}
  std::function<void(std::size_t, std::uint64_t)> begin() {
    return [this](std::size_t tensors, std::uint64_t) {
      progress_.emplace(Progress::Options{.label = label_, .total = static_cast<std::int64_t>(tensors), .unit = "MB", .quiet = quiet_});
    };
  }
  TensorProgress advance() {
    return [this](std::int64_t tensors, std::uint64_t bytes) { progress_->advance(tensors, static_cast<double>(bytes) / 1e6); };
  }

 private:
  std::string label_;
  bool quiet_;
  std::optional<Progress> progress_;
};

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 10'000'000'000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 10'000) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{} bytes", bytes);
}
double percent(std::uint64_t part, std::uint64_t whole) { return whole ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0; }

void print_json(const Json& json) { std::printf("%s\n", json.dump().c_str()); }
Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json written_json(const Written& written, const std::string& parent) {
  return {{"id", written.id},
          {"content", written.content},
          {"parent", text_or_null(parent)},
          {"full_bytes", written.full_bytes},
          {"payload_bytes", written.payload_bytes},
          {"file_bytes", written.file_bytes},
          {"codecs", written.codecs},
          {"changed_elements", written.changed_elements},
          {"compared_elements", written.elements}};
}
void print_written(const Written& written, const std::string& parent) {
  std::printf("%s\n", written.id.c_str());
  std::printf("  parent    %s\n", parent.empty() ? "none" : parent.c_str());
  std::printf("  payload   %s of %s (%.3f %%)\n", size_text(written.payload_bytes).c_str(), size_text(written.full_bytes).c_str(),
              percent(written.payload_bytes, written.full_bytes));
  std::string codecs;
  for (const auto& [name, tensors] : written.codecs) codecs += fmt::format("{}{} {}", codecs.empty() ? "" : ", ", tensors, name);
  std::printf("  tensors   %s\n", codecs.c_str());
  if (written.elements > 0)
    std::printf("  changed   %lld of %lld elements (%.3f %%)\n", static_cast<long long>(written.changed_elements), static_cast<long long>(written.elements),
                100.0 * static_cast<double>(written.changed_elements) / static_cast<double>(written.elements));
}

int push_command(const Arguments& arguments) {
  Common common;
  std::string folder, parent, base, channel, profile, transition = "immediate";
  OptionTable table("snapshot push", "Puts a Hugging Face folder into a store: all of it, or what changed since another snapshot. Prints the snapshot's id.",
                    {"lockstep snapshot push step-1 STORE --channel chat", "lockstep snapshot push step-2 STORE --channel chat --base step-1"});
  table.positional("FOLDER", &folder, true, "Model folder with safetensors, or the name of a shipped model: countdown-glm, agent-glm");
  table.positional("STORE", &common.store, true, "Folder that holds snapshots, which is made when it is not there; or s3://BUCKET/PREFIX");
  table.text("parent", &parent, "SNAPSHOT",
             "Send what changed since this one (an id, its first digits or a channel; `none`: all); default: where --channel points");
  table.input("base", &base, "FOLDER", "Folder with the parent's weights, so that they are not read back from the store");
  table.text("channel", &channel, "NAME", "Point this channel at the new snapshot, unless somebody else moved it meanwhile");
  table.choice("transition", &transition, {"immediate", "staged"}, "How followers of the channel go over: each when it has it, or all when the last has it");
  table.refused("without --channel", [&] { return channel.empty(); });
  table.text("profile", &profile, "NAME", "Numerics profile whose weights these are; its digest goes along");
  add_work_options(table, common);
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  if (!channel.empty() && !is_channel_name(channel))
    throw UsageError(fmt::format("snapshot push: --channel is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.'", channel));
  TensorDisplay display("push", common);
  PushOptions options{.threads = static_cast<int>(common.threads), .begin = display.begin(), .progress = display.advance()};
  options.profile = profile;
  if (!base.empty()) options.local = base;
  const auto store = open_store(common.store, true);
  const auto now = channel.empty() ? std::nullopt : read_channel_record(*store, channel);
  if (parent.empty()) options.parent = now ? now->target : "";
  else if (parent != "none") options.parent = find_snapshot(*store, parent);
  if (!base.empty() && options.parent.empty())
    throw UsageError("snapshot push: --base is refused without a parent; name one by --parent, or a --channel that has one");
  std::optional<Channel> moved;
  if (!channel.empty()) options.written = [&](const Written& one) { moved = move_channel(*store, channel, one.id, transition, now ? now->target : ""); };
  const Written written = push_folder(*store, shipped("models", folder), options);
  if (common.json) {
    Json json = written_json(written, options.parent);
    json["channel"] = text_or_null(channel);
    json["sequence"] = moved ? Json(moved->sequence) : Json();
    print_json(json);
    return kExitOk;
  }
  print_written(written, options.parent);
  if (moved) std::printf("  channel   %s, number %llu\n", channel.c_str(), static_cast<unsigned long long>(moved->sequence));
  return kExitOk;
}

int pull_command(const Arguments& arguments) {
  Common common;
  std::string name, out, base;
  OptionTable table("snapshot pull",
                    "Writes a snapshot as a Hugging Face folder, which every command takes as --model. Each tensor is compared with its digest.",
                    {"lockstep snapshot pull STORE chat model", "lockstep snapshot pull STORE chat model-2 --base model"});
  add_store(table, common);
  table.positional("SNAPSHOT", &name, true, kSnapshotHelp);
  table.output_folder("OUT", &out, "Folder to write").positional().required();
  table.input("base", &base, "FOLDER", "Folder of an earlier snapshot, so that only what came after it is read");
  FarOptions far;
  add_far_options(table, far, "default: OUT.lockstep.downloads");
  add_work_options(table, common);
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  const auto store = open_store(common.store, false, {.stall_seconds = far.stall_seconds});
  const std::string id = find_snapshot(*store, name);
  TensorDisplay display("pull", common);
  ByteDisplay download("download", common.quiet || common.json);
  PullOptions options{.downloads = far.downloads,
                      .parallel = static_cast<int>(far.parallel),
                      .threads = static_cast<int>(common.threads),
                      .begin = display.begin(),
                      .progress = display.advance()};
  options.begin_download = [&](std::uint64_t bytes) { download.begin(bytes); };
  options.downloaded = [&](std::uint64_t bytes) { download.advance(bytes); };
  options.begin = [&, begin = display.begin()](std::size_t tensors, std::uint64_t bytes) {
    download.finish();
    begin(tensors, bytes);
  };
  if (!base.empty()) options.local = base;
  const Pulled pulled = pull_snapshot(*store, id, out, table.overwrite(), options);
  if (common.json)
    print_json({{"id", id},
                {"folder", out},
                {"full_bytes", pulled.full_bytes},
                {"read_bytes", pulled.read_bytes},
                {"downloaded_bytes", pulled.downloaded},
                {"path", pulled.deltas}});
  else std::printf("%s\n  %s of %s read, in %s\n", id.c_str(), size_text(pulled.read_bytes).c_str(), size_text(pulled.full_bytes).c_str(), out.c_str());
  return kExitOk;
}

Json tensor_json(const SnapshotTensor& tensor) {
  return {{"name", tensor.shape.name},   {"dtype", safetensors_type_name(tensor.shape.type)},
          {"shape", tensor.shape.shape}, {"codec", codec_name(tensor.codec)},
          {"bytes", tensor.bytes},       {"result", tensor.result}};
}

// Names damaged snapshots and goes on with the others.
int show_store(const Store& store, bool json) {
  Json channels = Json::array(), snapshots = Json::array(), damaged = Json::array();
  const auto unless_damaged = [&](const char* kind, const std::string& name, auto&& add) {
    try {
      add();
    } catch (const Error& e) {
      damaged.push_back({{"kind", kind}, {"name", name}, {"error", e.what()}});
    }
  };
  for (const std::string& name : store.channels())
    unless_damaged("channel", name, [&] {
      const std::optional<Channel> channel = read_channel_record(store, name);
      if (!channel) return;  // removed meanwhile
      channels.push_back({{"name", name}, {"sequence", channel->sequence}, {"target", channel->target}, {"transition", channel->transition}});
    });
  for (const std::string& id : store.list(StoredKind::manifest))
    unless_damaged("snapshot", id, [&] {
      const Snapshot snapshot = load_snapshot(store, id);
      snapshots.push_back({{"id", id},
                           {"parent", text_or_null(snapshot.manifest.parent)},
                           {"payload_bytes", snapshot.manifest.payload_bytes()},
                           {"full_bytes", snapshot.manifest.full_bytes()}});
    });
  const int code = damaged.empty() ? kExitOk : kExitError;
  if (json) {
    print_json({{"store", store.label()}, {"channels", channels}, {"snapshots", snapshots}, {"damaged", damaged}});
    return code;
  }
  for (const Json& channel : channels)
    std::printf("channel %-16s number %-6llu %s\n", channel["name"].get<std::string>().c_str(), channel["sequence"].get<unsigned long long>(),
                channel["target"].get<std::string>().c_str());
  for (const Json& snapshot : snapshots)
    std::printf("%s  %-10s %s\n", snapshot["id"].get<std::string>().c_str(), size_text(snapshot["payload_bytes"].get<std::uint64_t>()).c_str(),
                snapshot["parent"].is_null() ? "full" : ("after " + snapshot["parent"].get<std::string>().substr(0, 12)).c_str());
  if (snapshots.empty() && damaged.empty()) std::printf("no snapshots yet\n");
  for (const Json& one : damaged)
    std::fprintf(stderr, "error: %s %s: %s\n", one["kind"].get<std::string>().c_str(), one["name"].get<std::string>().c_str(),
                 one["error"].get<std::string>().c_str());
  return code;
}

int show_command(const Arguments& arguments) {
  Common common;
  std::string name;
  bool tensors = false;
  OptionTable table("snapshot show",
                    "Lists a store's channels and snapshots, or shows one snapshot. Exit code 1 when something is damaged; the rest is listed.",
                    {"lockstep snapshot show STORE", "lockstep snapshot show STORE chat --tensors"});
  add_store(table, common);
  table.positional("SNAPSHOT", &name, false, kSnapshotHelp);
  table.flag("tensors", &tensors, "Every tensor: codec, bytes, digest");
  table.refused("without SNAPSHOT", [&] { return name.empty(); });
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  const auto store = open_store(common.store);
  if (name.empty()) return show_store(*store, common.json);
  const Snapshot snapshot = load_snapshot(*store, find_snapshot(*store, name));
  const SnapshotManifest& manifest = snapshot.manifest;
  if (common.json) {
    Json json = {{"id", snapshot.id},
                 {"content", content_digest(manifest)},
                 {"parent", text_or_null(manifest.parent)},
                 {"profile", text_or_null(manifest.profile)},
                 {"full_bytes", manifest.full_bytes()},
                 {"payload_bytes", manifest.payload_bytes()},
                 {"files", Json::array()},
                 {"tensor_count", manifest.tensors.size()}};
    for (const SnapshotFile& file : manifest.files) json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    if (tensors)
      for (const SnapshotTensor& tensor : manifest.tensors) json["tensors"].push_back(tensor_json(tensor));
    print_json(json);
    return kExitOk;
  }
  std::printf("%s\n  content   %s\n  parent    %s\n  profile   %s\n  payload   %s of %s (%.3f %%)\n  tensors   %zu\n", snapshot.id.c_str(),
              content_digest(manifest).c_str(), manifest.parent.empty() ? "none" : manifest.parent.c_str(),
              manifest.profile.empty() ? "not said" : manifest.profile.c_str(), size_text(manifest.payload_bytes()).c_str(),
              size_text(manifest.full_bytes()).c_str(), percent(manifest.payload_bytes(), manifest.full_bytes()), manifest.tensors.size());
  for (const SnapshotFile& file : manifest.files) std::printf("  %-26s%-12s%s\n", file.name.c_str(), size_text(file.bytes).c_str(), file.sha256.c_str());
  if (tensors)
    for (const SnapshotTensor& tensor : manifest.tensors)
      std::printf("  %-6s %12llu  %s  %s %s %s\n", std::string(codec_name(tensor.codec)).c_str(), static_cast<unsigned long long>(tensor.bytes),
                  tensor.result.c_str(), std::string(safetensors_type_name(tensor.shape.type)).c_str(), shape_text(tensor.shape.shape).c_str(),
                  quoted_name(tensor.shape.name).c_str());
  return kExitOk;
}

int diff_command(const Arguments& arguments) {
  Common common;
  std::string before, after;
  OptionTable table("snapshot diff",
                    "Lists the tensors that two snapshots do not have alike: how many elements changed, and by how many units in the last place at most.",
                    {"lockstep snapshot diff STORE 4f1c22 chat"});
  add_store(table, common);
  table.positional("BEFORE", &before, true, kSnapshotHelp);
  table.positional("AFTER", &after, true, "Another");
  add_work_options(table, common);
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  const auto store = open_store(common.store);
  const std::string from = find_snapshot(*store, before), to = find_snapshot(*store, after);
  TensorDisplay display("diff", common);
  const auto differences =
      diff_snapshots(*store, from, to, {.threads = static_cast<int>(common.threads), .begin = display.begin(), .progress = display.advance()});
  if (common.json) {
    Json json = {{"before", from}, {"after", to}, {"tensors", Json::array()}};
    for (const TensorDifference& d : differences)
      json["tensors"].push_back({{"name", d.name},
                                 {"before", text_or_null(d.before)},
                                 {"after", text_or_null(d.after)},
                                 {"elements", d.elements},
                                 {"changed", d.changed >= 0 ? Json(d.changed) : Json()},
                                 {"largest_step", d.largest_step}});
    print_json(json);
    return kExitOk;
  }
  for (const TensorDifference& d : differences) {
    std::string what = d.before.empty() ? "is new" : d.after.empty() ? "is gone" : "has another type or shape";
    if (d.changed >= 0) what = fmt::format("{} of {} changed, by {} at most", d.changed, d.elements, d.largest_step);
    std::printf("%s: %s\n", quoted_name(d.name).c_str(), what.c_str());
  }
  if (differences.empty()) std::printf("no tensor differs\n");
  return kExitOk;
}

int verify_command(const Arguments& arguments) {
  Common common;
  std::string name;
  OptionTable table("snapshot verify", "Reads a snapshot and all it is made from, and compares every digest. Exit code 1 when something is damaged or missing.",
                    {"lockstep snapshot verify STORE chat"});
  add_store(table, common);
  table.positional("SNAPSHOT", &name, true, kSnapshotHelp);
  add_work_options(table, common);
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  const auto store = open_store(common.store);
  const std::string id = find_snapshot(*store, name);
  VerifyReport report;
  {
    TensorDisplay display("verify", common);
    report = verify_snapshot(*store, id, {.threads = static_cast<int>(common.threads), .begin = display.begin(), .progress = display.advance()});
  }
  if (common.json) {
    print_json({{"id", id},
                {"sound", report.faults.empty()},
                {"snapshots", report.snapshots},
                {"objects", report.objects},
                {"bytes", report.bytes},
                {"tensors", report.tensors},
                {"faults", report.faults}});
    return report.faults.empty() ? kExitOk : kExitError;
  }
  for (const std::string& fault : report.faults) std::fprintf(stderr, "error: %s\n", fault.c_str());
  if (report.faults.empty())
    std::printf("%s\n  sound: %lld snapshots, %lld objects with %s, %lld tensors\n", id.c_str(), static_cast<long long>(report.snapshots),
                static_cast<long long>(report.objects), size_text(report.bytes).c_str(), static_cast<long long>(report.tensors));
  return report.faults.empty() ? kExitOk : kExitError;
}

int squash_command(const Arguments& arguments) {
  Common common;
  std::string from, to;
  OptionTable table("snapshot squash", "Makes one step of many: a snapshot with the content of TO whose parent is FROM. Prints its id.",
                    {"lockstep snapshot squash STORE 4f1c22 chat", "lockstep snapshot squash STORE none chat"});
  add_store(table, common);
  table.positional("FROM", &from, true, "Snapshot that a follower has, or `none`: the result needs no parent");
  table.positional("TO", &to, true, kSnapshotHelp);
  add_work_options(table, common);
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  const auto store = open_store(common.store);
  const std::string parent = from == "none" ? "" : find_snapshot(*store, from);
  TensorDisplay display("squash", common);
  const Written written = squash_snapshots(*store, parent, find_snapshot(*store, to),
                                           {.threads = static_cast<int>(common.threads), .begin = display.begin(), .progress = display.advance()});
  if (common.json) print_json(written_json(written, parent));
  else print_written(written, parent);
  return kExitOk;
}

int prune_command(const Arguments& arguments) {
  Common common;
  std::vector<std::string> keep;
  bool dry_run = false;
  OptionTable table("snapshot prune", "Removes snapshots and objects that no channel needs, nor a snapshot that is kept.",
                    {"lockstep snapshot prune STORE --dry-run", "lockstep snapshot prune STORE --keep 4f1c22"});
  add_store(table, common);
  table.texts("keep", &keep, "SNAPSHOT", "Keep this one too, with its parents");
  table.flag("dry-run", &dry_run, "Only say what would be removed");
  add_json_option(table, &common.json);
  if (!table.parse(arguments)) return kExitOk;

  const auto store = open_store(common.store);
  for (std::string& name : keep) name = find_snapshot(*store, name);
  const PruneReport report = prune_store(*store, keep, dry_run);
  if (common.json) {
    print_json({{"removed", !dry_run}, {"snapshots", report.snapshots}, {"objects", report.objects}, {"bytes", report.bytes}, {"kept", report.kept}});
    return kExitOk;
  }
  for (const std::string& id : report.snapshots) std::printf("snapshot %s\n", id.c_str());
  std::printf("%zu snapshots and %zu objects, %s, %s; %lld snapshots kept\n", report.snapshots.size(), report.objects.size(), size_text(report.bytes).c_str(),
              dry_run ? "would be removed" : "removed", static_cast<long long>(report.kept));
  return kExitOk;
}
}  // namespace

int snapshot_command(const Arguments& arguments) {
  return run_kind("snapshot",
                  {{"push", push_command},
                   {"pull", pull_command},
                   {"show", show_command},
                   {"diff", diff_command},
                   {"verify", verify_command},
                   {"squash", squash_command},
                   {"mirror", snapshot_mirror_command},
                   {"prune", prune_command}},
                  "usage: lockstep snapshot push|pull|show|diff|verify|squash|mirror|prune [options]\n\n"
                  "  lockstep snapshot push step-1 STORE --channel chat     # all weights\n"
                  "  lockstep snapshot push step-2 STORE --channel chat     # what changed since\n"
                  "  lockstep snapshot pull STORE chat model                # the newest, as a Hugging Face folder\n\n"
                  "`lockstep snapshot push --help` and so on list every option; docs/weight-sync.md has the format.\n",
                  arguments);
}

}  // namespace lockstep
