#include "cli/doctor_ranks.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/doctor_lines.h"
#include "observe/progress.h"
#include "parity/rank_check.h"

namespace lockstep {

namespace {
RankLayout layout_asked(const RanksAsked& asked) {
  if (asked.ranks != "auto") return rank_layout(asked.ranks);
  const ProcessMail* mail = joined_mail();
  return {.dp = mail ? mail->processes() : 2};
}

nlohmann::ordered_json links_json(const LinkSpeeds& speeds) {
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (const LinkSpeed& link : speeds.links)
    links.push_back({{"first", link.first},
                     {"second", link.second},
                     {"latency_seconds", link.latency},
                     {"bytes_per_second", link.there},
                     {"bytes_per_second_back", link.back},
                     {"message_bytes", link.there_bytes},
                     {"message_bytes_back", link.back_bytes}});
  return links;
}

nlohmann::ordered_json check_json(const RankLayout& layout, const RankCheck& check) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankFacts& rank : check.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"process", rank.process},
                     {"host", rank.host},
                     {"pid", rank.pid},
                     {"threads", rank.threads},
                     {"instruction_set", rank.instruction_set},
                     {"program", rank.program},
                     {"operations", rank.bits.size()},
                     {"bits", bits_digest(rank.bits)}});
  nlohmann::ordered_json json{{"fit", check.fit()}, {"layout", layout.text()}, {"ranks", std::move(ranks)}, {"links", links_json(check.links)}};
  json["around_bytes_per_second"] = check.links.links.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(check.links.around);
  json["findings"] = findings_json(check.findings);
  return json;
}

void print_links(const RankCheck& check) {
  if (check.links.links.empty()) return;
  std::printf("%-12s %-33s %-12s %-12s %s\n", "ranks", "hosts", "8 bytes", "there", "back");
  for (const LinkSpeed& link : check.links.links) {
    const auto host = [&](int rank) { return check.ranks[static_cast<std::size_t>(rank)].host; };
    std::printf("%-12s %-33s %-12s %-12s %s\n", fmt::format("{} - {}", link.first, link.second).c_str(),
                fmt::format("{} - {}", host(link.first), host(link.second)).c_str(), seconds_text(link.latency).c_str(), rate_text(link.there).c_str(),
                rate_text(link.back).c_str());
  }
}
}  // namespace

int doctor_of_ranks(const RanksAsked& asked) {
  join_processes(asked.processes);
  const RankLayout layout = layout_asked(asked);
  const std::unique_ptr<Ranks> ranks = make_ranks(layout);
  RankCheckSettings settings;
  if (asked.isa != "auto") settings.isa = instruction_set_by_name(asked.isa);
  settings.threads = static_cast<int>(asked.threads > 0 ? asked.threads : available_processors());
  settings.program = version_commit();
  settings.links = !asked.quick;
  settings.model = asked.model;
  settings.measure.patience = std::chrono::seconds(asked.processes.rank_timeout);
  std::unique_ptr<Progress> progress;
  settings.say = [&](const std::string& sentence) {
    if (!asked.json) std::fprintf(stderr, "doctor: %s\n", sentence.c_str());
  };
  settings.measure.on_link = [&](const LinkSpeed& link, std::size_t, std::size_t all) {
    if (asked.json) return;
    if (!progress) progress = std::make_unique<Progress>(Progress::Options{.label = "links", .total = static_cast<std::int64_t>(all), .unit = "links"});
    progress->note(fmt::format("ranks {} and {}: {}, {}", link.first, link.second, seconds_text(link.latency), rate_text(std::min(link.there, link.back))));
    progress->advance();
  };
  const RankCheck check = check_ranks(*ranks, settings);
  if (progress) progress->finish();
  if (ranks->process() != 0) return kExitOk;  // process 0 says it, with the exit code
  if (asked.json) {
    print_as_line(check_json(layout, check));
  } else {
    print_links(check);
    print_findings(check.findings);
    std::printf("%s\n", check.fit() ? "these ranks are fit" : "these ranks are NOT fit");
  }
  return check.fit() ? kExitOk : kExitError;
}

}  // namespace lockstep
