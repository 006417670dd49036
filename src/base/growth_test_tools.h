// Measures how a reader's work grows with its input, in instructions of the thread where the system counts them, else in its processor
// time. Tests only.
//   EXPECT_LT(growth([&](std::size_t size) { return text_of(size); }, [](const std::string& text) { read(text); }, 20'000), kLinearGrowth);
#pragma once
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

class WorkMeter {
 public:
  WorkMeter() {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.size = sizeof attributes;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = attributes.exclude_hv = 1;
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  ~WorkMeter() {
    if (file_ >= 0) close(file_);
  }
  WorkMeter(const WorkMeter&) = delete;
  WorkMeter& operator=(const WorkMeter&) = delete;
  bool counts_instructions() const { return file_ >= 0; }
  // Instructions, or nanoseconds of this thread: the least of some tries.
  double of(const std::function<void()>& work, int tries = 4) const {
    double least = 0;
    for (int i = 0; i < (file_ >= 0 ? 1 : tries); ++i) {
      const double before = now();
      work();
      const double took = now() - before;
      least = i == 0 ? took : std::min(least, took);
    }
    return least;
  }

 private:
  double now() const {
    if (std::uint64_t count = 0; file_ >= 0 && read(file_, &count, sizeof count) == sizeof count) return static_cast<double>(count);
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  }
  int file_ = -1;
};

inline constexpr double kLinearGrowth = 2.5;
// What doubling the input multiplies the work by, between `size` and eight times that: 2 for linear work, 4 for quadratic. Time is
// disturbed by others, which can only make it longer: of the small input, against which work that grows would look like less, the least of several
// tries is taken at once; the large one, which takes most of the time, is measured again where it looks like `bound` or more.
template <class Make, class Run>
double growth(const Make& make, const Run& run, std::size_t size, double bound = kLinearGrowth) {
  constexpr int kMostTries = 32;
  const WorkMeter meter;
  const auto small = make(size), large = make(8 * size);
  double least_small = 0, least_large = 0, ratio = 0;
  run(small);  // what is made once
  for (int i = 0; i < kMostTries && (i == 0 || ratio >= bound); ++i) {
    const double one = meter.of([&] { run(small); }), eight = meter.of([&] { run(large); }, 1);
    least_small = i == 0 ? one : std::min(least_small, one);
    least_large = i == 0 ? eight : std::min(least_large, eight);
    ratio = std::cbrt(least_large / least_small);
  }
  return ratio;
}

}  // namespace lockstep
