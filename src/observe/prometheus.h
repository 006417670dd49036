// Prometheus metrics: histograms that any thread may add to, and the text format (version 0.0.4) of a scrape.
//   PrometheusText text; text.family("lockstep_open", "gauge", "Open requests."); text.sample({}, 3); body = text.take();
// Knows nothing of what the numbers mean. Histogram: any thread. PrometheusText: one thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class Histogram {
 public:
  // Upper bounds, ascending; one more bucket has no bound.
  explicit Histogram(std::vector<double> bounds);
  // 0.5 ms to a minute and a half, doubling: for times of requests in seconds.
  static std::vector<double> second_bounds();
  void observe(double value);
  std::uint64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  friend class PrometheusText;
  std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;  // of each bucket alone
  std::atomic<double> sum_{0};
};

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;
  // Samples of a family follow it. `type`: counter, gauge or histogram.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(const Labels& labels, double value);
  void histogram(const Labels& labels, const Histogram& histogram);
  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, const Labels& labels, std::string_view bound, double value);
  std::string name_, text_;
};

// Processor time, memory, descriptors and start of this process, in the names that Prometheus' own clients use.
void append_process_metrics(PrometheusText& text);

}  // namespace lockstep
