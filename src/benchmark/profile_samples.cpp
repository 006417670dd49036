#include "benchmark/profile_samples.h"

#include <elf.h>
#include <link.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {

namespace {
constexpr std::size_t kMostSamples = 1'000'000;
// Written by a signal handler, on whatever thread is running.
std::atomic<std::size_t> taken{0};
std::vector<std::uint64_t> places;

void take_sample(int, siginfo_t*, void* context) {
  const std::size_t at = taken.fetch_add(1, std::memory_order_relaxed);
  if (at < places.size()) places[at] = static_cast<std::uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}

void set_profile_timer(int microseconds) {
  itimerval timer{};
  timer.it_interval.tv_usec = timer.it_value.tv_usec = microseconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

// Where the program was loaded: an address in memory minus that in the file.
std::uint64_t load_offset() {
  std::uint64_t offset = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<std::uint64_t*>(result) = info->dlpi_addr;
        return 1;  // the first one is the program
      },
      &offset);
  return offset;
}

template <class T>
T read_at(const std::string& file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) fail(ErrorCode::corrupt_file, "the program's own file ends at {} bytes", file.size());
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}
}  // namespace

ProfileSamples::ProfileSamples() {
  const std::string file = read_file("/proc/self/exe", std::int64_t{1} << 31);
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  const std::uint64_t loaded = load_offset();
  for (int i = 0; i < header.e_shnum; ++i) {
    const auto section = read_at<Elf64_Shdr>(file, header.e_shoff + static_cast<std::uint64_t>(i) * header.e_shentsize);
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto names = read_at<Elf64_Shdr>(file, header.e_shoff + section.sh_link * header.e_shentsize);
    for (std::uint64_t at = section.sh_offset; at + sizeof(Elf64_Sym) <= section.sh_offset + section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(file, at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || symbol.st_name >= names.sh_size) continue;
      const std::uint64_t name = names.sh_offset + symbol.st_name, end = file.find('\0', name);
      if (end == std::string::npos) continue;
      functions_.push_back({loaded + symbol.st_value, loaded + symbol.st_value + symbol.st_size, file.substr(name, end - name)});
    }
  }
  if (functions_.empty()) fail(ErrorCode::unsupported, "this program has no symbols (it was stripped), so that no function can be told from another");
  std::sort(functions_.begin(), functions_.end(), [](const Function& a, const Function& b) { return a.begin < b.begin; });
}

std::vector<std::string> ProfileSamples::symbols() const {
  std::vector<std::string> names;
  for (const Function& function : functions_) names.push_back(function.symbol);
  return names;
}

void ProfileSamples::begin() {
  places.assign(kMostSamples, 0);
  taken = 0;
  struct sigaction action {};
  action.sa_sigaction = take_sample;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  running_ = true;
  set_profile_timer(1000);
}

void ProfileSamples::end() {
  if (!running_) return;
  set_profile_timer(0);
  signal(SIGPROF, SIG_IGN);
  running_ = false;
}

std::int64_t ProfileSamples::count() const { return static_cast<std::int64_t>(std::min(taken.load(), places.size())); }

std::vector<std::int64_t> ProfileSamples::samples_of_functions() const {
  if (count() == 0) fail(ErrorCode::internal, "no sample was taken: the run was too short");
  std::vector<std::int64_t> samples(functions_.size() + 1);
  for (std::int64_t i = 0; i < count(); ++i) {
    const std::uint64_t place = places[static_cast<std::size_t>(i)];
    const auto after = std::upper_bound(functions_.begin(), functions_.end(), place, [](std::uint64_t p, const Function& f) { return p < f.begin; });
    const bool known = after != functions_.begin() && place < std::prev(after)->end;
    ++samples[known ? static_cast<std::size_t>(after - functions_.begin() - 1) : functions_.size()];
  }
  return samples;
}

double ProfileSamples::share(const std::vector<std::string>& names) const {
  const std::vector<std::int64_t> samples = samples_of_functions();
  std::int64_t inside = 0;
  for (std::size_t f = 0; f < functions_.size(); ++f)
    if (samples[f] > 0 &&
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return functions_[f].symbol.find(name) != std::string::npos; }))
      inside += samples[f];
  return static_cast<double>(inside) / static_cast<double>(count());
}

std::vector<std::pair<std::string, double>> ProfileSamples::shares(const std::function<std::string_view(std::string_view symbol)>& group_of) const {
  const std::vector<std::int64_t> samples = samples_of_functions();
  std::map<std::string, std::int64_t> groups;
  for (std::size_t f = 0; f <= functions_.size(); ++f)
    if (samples[f] > 0) groups[std::string(group_of(f < functions_.size() ? std::string_view(functions_[f].symbol) : std::string_view()))] += samples[f];
  std::vector<std::pair<std::string, double>> shares;
  for (const auto& [name, taken_here] : groups) shares.emplace_back(name, static_cast<double>(taken_here) / static_cast<double>(count()));
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

}  // namespace lockstep
