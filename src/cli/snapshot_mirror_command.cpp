// `lockstep snapshot mirror`: a store that follows a channel of another (sync/mirror.h).
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/far_options.h"
#include "sync/channel.h"
#include "sync/mirror.h"

namespace lockstep {
namespace {
void print_mirrored(const MirrorReport& report, const std::string& channel, bool json) {
  if (json) {
    std::printf("%s\n", nlohmann::ordered_json{{"channel", channel},
                                               {"sequence", report.sequence},
                                               {"target", report.target},
                                               {"snapshots", report.snapshots},
                                               {"skips", report.skips},
                                               {"fulls", report.fulls},
                                               {"copied_bytes", report.copied_bytes},
                                               {"downloaded_bytes", report.downloaded_bytes},
                                               {"made_bytes", report.made_bytes}}
                            .dump()
                            .c_str());
  } else {
    std::printf("%s\n  channel   %s, number %llu\n  copied    %zu snapshots, %.1f MB\n  made      %zu skip deltas and %zu full copies, %.1f MB\n",
                report.target.c_str(), channel.c_str(), static_cast<unsigned long long>(report.sequence), report.snapshots.size(),
                static_cast<double>(report.copied_bytes) / 1e6, report.skips.size(), report.fulls.size(), static_cast<double>(report.made_bytes) / 1e6);
  }
  std::fflush(stdout);
}

// Whether an error may end by itself: a server that is down, a parent that is not there yet, a damaged object that is pushed again.
bool may_heal(const Error& e) {
  return e.code() == ErrorCode::io || e.code() == ErrorCode::not_found || e.code() == ErrorCode::corrupt_file || e.code() == ErrorCode::resource_exhausted;
}

void wait_or_stop(double seconds) {
  using namespace std::chrono;
  for (const auto until = steady_clock::now() + duration<double>(seconds); steady_clock::now() < until && !interrupted();)
    std::this_thread::sleep_for(milliseconds(20));
}
}  // namespace

int snapshot_mirror_command(const Arguments& arguments) {
  std::string from, to, channel;
  std::int64_t threads = 2, full_every = 0;
  double poll_seconds = 1;
  bool follow = false, quiet = false, json = false;
  FarOptions far;
  OptionTable table(
      "snapshot mirror",
      "Brings a channel of one store into another, and makes skip deltas 2, 4, 8, ... snapshots back there, so that whoever is far behind reads little.",
      {"lockstep snapshot mirror https://trainer.example/store region --channel chat --follow",
       "lockstep snapshot mirror STORE s3://bucket/prefix --channel chat --full-every 64 --downloads cache"});
  table.positional("FROM", &from, true, "Store to read: a folder, http://HOST/PATH, https://, s3://BUCKET/PREFIX");
  table.positional("TO", &to, true, "Store to write: a folder, which is made when it is not there, or s3://BUCKET/PREFIX");
  table.text("channel", &channel, "NAME", "Channel to follow").required();
  table.integer("full-every", &full_every, 0, 1'000'000, "N", "Make a full copy of every N-th snapshot too; 0: of none");
  table.flag("follow", &follow, "Go on with every later snapshot, until Ctrl-C");
  table.number("poll-seconds", &poll_seconds, 0.05, 3600, "S", "How often to look");
  table.refused("without --follow", [&] { return !follow; });
  add_far_options(table, far, "default: TO/downloads, where TO is a folder");
  table.integer("threads", &threads, 1, 1024, "N", "Threads over tensors; no byte depends on it");
  table.flag("quiet", &quiet, "Show no progress");
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;
  if (!is_channel_name(channel))
    throw UsageError(fmt::format("snapshot mirror: --channel is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.'", channel.substr(0, 80)));

  if (follow) install_interrupt_handlers();
  const StoreOptions network{.stall_seconds = far.stall_seconds, .stop = follow ? interrupt_token() : StopToken()};
  const auto source = open_store(from, false, network), target = open_store(to, true, network);
  MirrorOptions options{.downloads = far.downloads, .parallel = static_cast<int>(far.parallel), .threads = static_cast<int>(threads)};
  options.full_every = static_cast<std::uint64_t>(full_every);
  if (options.downloads.empty() && !target->is_far()) options.downloads = std::filesystem::path(to) / "downloads";
  if (options.downloads.empty() && source->is_far()) throw UsageError("snapshot mirror: between two stores over a network --downloads FOLDER is needed");
  std::uint64_t printed = 0;
  for (double pause = poll_seconds; !interrupted(); wait_or_stop(pause)) {
    try {
      ByteDisplay display("mirror", quiet || json);
      std::uint64_t shown = 0;
      options.progress = [&](const std::string&, std::uint64_t done, std::uint64_t all) {
        display.begin(all);
        display.advance(done - shown);
        shown = done;
      };
      const MirrorReport report = mirror_channel(*source, *target, channel, options);
      display.finish();
      if (!follow || report.sequence != printed) print_mirrored(report, channel, json);
      printed = report.sequence;
      if (!follow) return kExitOk;
      pause = poll_seconds;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::cancelled && interrupted()) break;
      if (!follow || !may_heal(e)) throw;
      pause = std::min(60.0, 2 * pause);
      std::fprintf(stderr, "error: %s; tried again in %.1f s\n", e.what(), pause);
    }
  }
  return kExitOk;
}

}  // namespace lockstep
