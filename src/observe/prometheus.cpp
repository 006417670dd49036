#include "observe/prometheus.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lockstep {
namespace {
void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '\\' || (quotes && c == '"')) (out += '\\') += c;
    else out += c;
  }
}

void append_number(std::string& out, double value) {
  if (std::isnan(value)) out += "NaN";
  else if (std::isinf(value)) out += value > 0 ? "+Inf" : "-Inf";
  else if (value == std::floor(value) && std::fabs(value) < 1e15) fmt::format_to(std::back_inserter(out), "{}", static_cast<std::int64_t>(value));
  else fmt::format_to(std::back_inserter(out), "{}", value);
}
}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

std::vector<double> Histogram::second_bounds() {
  std::vector<double> bounds;
  for (double bound = 0.0005; bound < 100; bound *= 2) bounds.push_back(bound);
  return bounds;
}

void Histogram::observe(double value) {
  const auto bucket = static_cast<std::size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t Histogram::count() const {
  std::uint64_t all = 0;
  for (const auto& count : counts_) all += count.load(std::memory_order_relaxed);
  return all;
}

void PrometheusText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} ", name);
  append_escaped(text_, help, false);
  text_ += fmt::format("\n# TYPE {} {}\n", name, type);
}

void PrometheusText::line(std::string_view suffix, const Labels& labels, std::string_view bound, double value) {
  (text_ += name_) += suffix;
  if (!labels.empty() || !bound.empty()) {
    char before = '{';
    const auto label = [&](std::string_view name, std::string_view text) {
      (text_ += before) += name;
      text_ += "=\"";
      append_escaped(text_, text, true);
      text_ += '"';
      before = ',';
    };
    for (const auto& [name, text] : labels) label(name, text);
    if (!bound.empty()) label("le", bound);
    text_ += '}';
  }
  text_ += ' ';
  append_number(text_, value);
  text_ += '\n';
}

void PrometheusText::sample(const Labels& labels, double value) { line({}, labels, {}, value); }

void PrometheusText::histogram(const Labels& labels, const Histogram& histogram) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts_.size(); ++i) {
    below += histogram.counts_[i].load(std::memory_order_relaxed);
    const bool last = i == histogram.bounds_.size();
    line("_bucket", labels, last ? std::string("+Inf") : fmt::format("{}", histogram.bounds_[i]), static_cast<double>(below));
  }
  line("_sum", labels, {}, histogram.sum());
  line("_count", labels, {}, static_cast<double>(below));  // what the buckets said, whoever has added since
}

void append_process_metrics(PrometheusText& text) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
    text.family("process_cpu_seconds_total", "counter", "User and system processor time.");
    text.sample({}, seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    long pages = 0, resident = 0;
    if (std::fscanf(file, "%ld %ld", &pages, &resident) == 2) {
      const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
      text.family("process_virtual_memory_bytes", "gauge", "Virtual memory.");
      text.sample({}, static_cast<double>(pages) * page);
      text.family("process_resident_memory_bytes", "gauge", "Resident memory.");
      text.sample({}, static_cast<double>(resident) * page);
    }
    std::fclose(file);
  }
  if (DIR* folder = opendir("/proc/self/fd")) {
    int open = -1;  // the folder's own
    while (const dirent* entry = readdir(folder)) open += entry->d_name[0] != '.';
    closedir(folder);
    text.family("process_open_fds", "gauge", "Open file descriptors.");
    text.sample({}, open);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text.family("process_max_fds", "gauge", "File descriptors that may be open.");
    text.sample({}, limit.rlim_cur == RLIM_INFINITY ? HUGE_VAL : static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace lockstep
