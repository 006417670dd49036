// What is said of a run's hosts and links (parity/rank_check.h).
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/median.h"
#include "parity/rank_check.h"

namespace lockstep {

namespace {
using Level = Finding::Level;
constexpr double kSlower = 4;             // than the median of links like it: worth a word
constexpr double kLeastLatency = 200e-6;  // below it a link is no trouble, whatever others are

// One of each process, which computes the same for all of its ranks.
std::vector<const RankFacts*> processes_of(const std::vector<RankFacts>& ranks) {
  std::vector<const RankFacts*> firsts;
  for (const RankFacts& rank : ranks)
    if (firsts.empty() || firsts.back()->process != rank.process) firsts.push_back(&rank);
  return firsts;
}

Finding who(const RankLayout& layout, const std::vector<RankFacts>& ranks) {
  std::map<std::string, std::vector<const RankFacts*>> hosts;
  for (const RankFacts* process : processes_of(ranks)) hosts[process->host].push_back(process);
  std::vector<std::string> shown;
  for (const auto& [host, processes] : hosts) {
    std::set<std::string> sets;
    for (const RankFacts* process : processes) sets.insert(process->instruction_set);
    shown.push_back(fmt::format("{} ({} process{}, {})", host, processes.size(), processes.size() == 1 ? "" : "es", fmt::join(sets, " and ")));
  }
  return {Level::good, "ranks", fmt::format("{}: {} ranks on {}", layout.text(), ranks.size(), fmt::join(shown, ", ")), ""};
}

std::vector<Finding> programs(const std::vector<RankFacts>& ranks) {
  std::vector<Finding> found;
  const RankFacts& first = ranks.front();
  for (const RankFacts* other : processes_of(ranks)) {
    if (other->program != first.program)
      found.push_back({Level::warning, "program", fmt::format("{} is built of commit {}, {} of {}", other->name(), other->program, first.name(), first.program),
                       "copy one build to all hosts, under the same path"});
    const auto [mine, its] = std::mismatch(other->profiles.begin(), other->profiles.end(), first.profiles.begin(), first.profiles.end());
    if (mine == other->profiles.end() && its == first.profiles.end()) continue;
    const std::string which = mine != other->profiles.end() ? mine->what : its->what;
    found.push_back({Level::problem, "program",
                     fmt::format("{} and {} have another numerics profile '{}': they do not compute the same", other->name(), first.name(), which),
                     "copy one build to all hosts, under the same path"});
  }
  return found;
}

// What most processes compute; of as many the one with the lowest rank.
const RankFacts& most_agreed(const std::vector<const RankFacts*>& processes) {
  const RankFacts* best = processes.front();
  std::ptrdiff_t most = 0;
  for (const RankFacts* one : processes) {
    const auto alike = std::count_if(processes.begin(), processes.end(), [&](const RankFacts* other) { return other->bits == one->bits; });
    if (alike > most) most = alike, best = one;
  }
  return *best;
}

std::vector<Finding> bits_of_ranks(const std::vector<RankFacts>& ranks) {
  const std::vector<const RankFacts*> processes = processes_of(ranks);
  const RankFacts& agreed = most_agreed(processes);
  std::vector<Finding> found;
  std::set<std::string> sets;
  for (const RankFacts* one : processes) {
    sets.insert(one->instruction_set);
    if (one->bits == agreed.bits) continue;
    std::size_t other = 0, first = agreed.bits.size();
    const std::size_t shared = std::min(one->bits.size(), agreed.bits.size());
    for (std::size_t i = 0; i < shared; ++i)
      if (one->bits[i] != agreed.bits[i]) other += 1, first = std::min(first, i);
    const std::string where = first < shared ? fmt::format("first in '{}', in {} of {} operations in all", agreed.bits[first].what, other, agreed.bits.size())
                                             : fmt::format("{} operations are compared there, and {} here", one->bits.size(), agreed.bits.size());
    found.push_back(
        {Level::problem, "bits",
         fmt::format("{} with {} computes other bits than {} with {}: {}", one->name(), one->instruction_set, agreed.name(), agreed.instruction_set, where),
         fmt::format("run `lockstep doctor` on {} and on {}: where its self-test fails, build anew and have memory and processor checked; leave that host out "
                     "of the run until then",
                     one->host, agreed.host)});
  }
  if (found.empty())
    found.push_back({Level::good, "bits",
                     fmt::format("{} operations of forward, gradient and step have the same bits in {} process{} ({})", agreed.bits.size(), processes.size(),
                                 processes.size() == 1 ? "" : "es", fmt::join(sets, ", ")),
                     ""});
  return found;
}

// Where a process's files are not those of rank 0; empty: they are.
std::string other_file(const RankFacts& one, const RankFacts& first) {
  if (one.files.empty()) return "is not there, or has no file that a model is read from";
  for (std::size_t i = 0; i < std::max(one.files.size(), first.files.size()); ++i) {
    if (i == one.files.size() || (i < first.files.size() && one.files[i].name > first.files[i].name)) return fmt::format("has no {}", first.files[i].name);
    if (i == first.files.size() || one.files[i].name < first.files[i].name) return fmt::format("has {}, which is not there", one.files[i].name);
    const FileDigest &mine = one.files[i], &its = first.files[i];
    if (mine.bytes != its.bytes) return fmt::format("has another {}: {} bytes, and {} there", mine.name, mine.bytes, its.bytes);
    if (mine.digest != its.digest) return fmt::format("has another {}, of as many bytes", mine.name);
  }
  return {};
}

std::vector<Finding> models_of_ranks(const std::vector<RankFacts>& ranks, const std::string& model) {
  std::vector<Finding> found;
  const RankFacts& first = ranks.front();
  const std::vector<const RankFacts*> processes = processes_of(ranks);
  for (const RankFacts* one : processes)
    if (const std::string other = other_file(*one, first); !other.empty())
      found.push_back({Level::problem, "model", fmt::format("'{}' of {}, beside that of {}, {}", model, one->name(), first.name(), other),
                       "copy the folder of one host to all, under the same path, or have it on a disk that they share"});
  std::int64_t bytes = 0;
  for (const FileDigest& file : first.files) bytes += file.bytes;
  if (found.empty())
    found.push_back({Level::good, "model",
                     fmt::format("'{}': {} files, {:.3g} GB, the same in {} process{}", model, first.files.size(), static_cast<double>(bytes) / 1e9,
                                 processes.size(), processes.size() == 1 ? "" : "es"),
                     ""});
  return found;
}

double slower_way(const LinkSpeed& link) { return std::min(link.there, link.back); }

template <class F>
double median_over(const std::vector<const LinkSpeed*>& links, const F& of) {
  std::vector<double> values;
  for (const LinkSpeed* link : links) values.push_back(of(*link));
  return median(std::move(values));
}

// Links of one kind, within hosts or between them: what they are like, and which of them are not.
std::vector<Finding> links_like(const std::vector<RankFacts>& ranks, const std::vector<const LinkSpeed*>& links, bool between_hosts) {
  std::vector<Finding> found;
  const auto latency = [](const LinkSpeed& link) { return link.latency; };
  const auto [quick, slow] = std::minmax_element(links.begin(), links.end(), [](auto* a, auto* b) { return a->latency < b->latency; });
  const auto [narrow, wide] = std::minmax_element(links.begin(), links.end(), [](auto* a, auto* b) { return slower_way(*a) < slower_way(*b); });
  const auto range = [](const std::string& low, const std::string& high) { return low == high ? low : low + " to " + high; };
  found.push_back({Level::good, "links",
                   fmt::format("{} {}: 8 bytes take {}, large messages {}", links.size(), between_hosts ? "between hosts" : "within a host",
                               range(seconds_text((*quick)->latency), seconds_text((*slow)->latency)),
                               range(rate_text(slower_way(**narrow)), rate_text(slower_way(**wide)))),
                   ""});
  const double usual = median_over(links, latency), rate = median_over(links, slower_way);
  for (const LinkSpeed* link : links) {
    const auto name = [&](int rank) { return ranks[static_cast<std::size_t>(rank)].name(); };
    std::vector<std::string> why;
    if (link->latency > kSlower * usual && link->latency > kLeastLatency)
      why.push_back(fmt::format("8 bytes take {}, {} on most such links", seconds_text(link->latency), seconds_text(usual)));
    if (slower_way(*link) * kSlower < rate)
      why.push_back(fmt::format("large messages {}, {} on most such links", rate_text(slower_way(*link)), rate_text(rate)));
    if (between_hosts && slower_way(*link) * kSlower < std::max(link->there, link->back))
      why.push_back(fmt::format("large messages {} there and {} back", rate_text(link->there), rate_text(link->back)));
    if (!why.empty())
      found.push_back({Level::warning, "links", fmt::format("between {} and {}: {}", name(link->first), name(link->second), fmt::join(why, "; ")),
                       between_hosts
                           ? "look at cable, switch and card (ethtool tells its speed), and at other traffic; btl_tcp_if_include chooses among several networks"
                           : "look at what else runs on that host, and how its processes are bound to cores (mpirun --report-bindings)"});
  }
  return found;
}

std::vector<Finding> links_of_ranks(const std::vector<RankFacts>& ranks, const LinkSpeeds& speeds) {
  std::vector<Finding> found;
  for (const bool between : {false, true}) {
    std::vector<const LinkSpeed*> links;
    for (const LinkSpeed& link : speeds.links)
      if ((ranks[static_cast<std::size_t>(link.first)].host != ranks[static_cast<std::size_t>(link.second)].host) == between) links.push_back(&link);
    if (links.empty()) continue;
    for (Finding& finding : links_like(ranks, links, between)) found.push_back(std::move(finding));
  }
  if (!speeds.links.empty())
    found.push_back({Level::good, "links", fmt::format("each rank to the next one, all at once: {} a rank", rate_text(speeds.around)), ""});
  return found;
}

// A group that sends in every layer is best within a host.
std::vector<Finding> groups_over_hosts(const RankLayout& layout, const std::vector<RankFacts>& ranks) {
  const int group = layout.model();
  for (int first = 0; group > 1 && first < layout.size(); first += group)
    for (int rank = first + 1; rank < first + group; ++rank)
      if (const RankFacts& a = ranks[static_cast<std::size_t>(first)], &b = ranks[static_cast<std::size_t>(rank)]; a.host != b.host)
        return {{Level::note, "layout",
                 fmt::format("{} and {} share each layer's sums ({}), which go between two hosts in every layer", a.name(), b.name(), layout.text()),
                 "have tp x ep ranks on one host, and dp or pp between hosts (`lockstep simulate` computes both)"}};
  return {};
}
}  // namespace

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string rate_text(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
  if (bytes_per_second >= 1e6) return fmt::format("{:.3g} MB/s", bytes_per_second / 1e6);
  return fmt::format("{:.3g} kB/s", bytes_per_second / 1e3);
}

std::vector<Finding> judge_ranks(const RankLayout& layout, const std::vector<RankFacts>& ranks, const LinkSpeeds& links, const std::string& model) {
  std::vector<Finding> found = {who(layout, ranks)};
  const std::vector<Finding> models = model.empty() ? std::vector<Finding>() : models_of_ranks(ranks, model);
  for (const auto& some : {programs(ranks), bits_of_ranks(ranks), models, links_of_ranks(ranks, links), groups_over_hosts(layout, ranks)})
    found.insert(found.end(), some.begin(), some.end());
  return found;
}

}  // namespace lockstep
