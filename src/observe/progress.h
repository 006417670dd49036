// A progress display on stderr: on a terminal one line, redrawn at most 10 times a second; elsewhere a plain line
// every few seconds; nothing when quiet. Any thread may advance it.
//   Progress progress({.label = "train", .total = steps, .unit = "tokens"});
//   progress.advance(1, tokens_of_step);  progress.note("loss 0.71");  progress.finish();
// draws `train  [=====>              ]  26/100  1234 tokens/s  2:05 left  loss 0.71`.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace lockstep {

class Progress {
 public:
  struct Options {
    std::string label;
    std::int64_t total = 0;         // steps; 0: unknown, then neither bar nor time left
    std::int64_t already_done = 0;  // steps of an earlier run: no part of rate and time left
    std::string unit = "steps";     // of the rate
    bool quiet = false;
    double plain_seconds = 5;  // between plain lines
    // For tests; empty ones mean stderr, whether that is a terminal, its width, and the steady clock (seconds).
    std::function<void(const std::string&)> write = {};
    int terminal = -1;  // 1 yes, 0 no, -1 find out
    std::function<double()> clock = {};
  };
  explicit Progress(Options options);
  ~Progress();  // finishes
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `steps` more are done, in which `units` were dealt with (the rate counts units).
  void advance(std::int64_t steps, double units);
  void advance(std::int64_t steps = 1) { advance(steps, static_cast<double>(steps)); }
  void note(std::string text);  // a text for the end of the line, from now on
  void finish();                // the last line, with the whole time; later calls do nothing

 private:
  void draw_if_due(double now);
  std::string line(double now) const;
  void emit(const std::string& text) const;

  Options options_;
  mutable std::mutex mutex_;
  bool terminal_ = false;
  bool finished_ = false;
  double begin_ = 0, last_drawn_ = 0;
  std::int64_t done_ = 0;
  double units_ = 0;
  std::string note_;
};

// 75 -> "1:15", 3700 -> "1:01:40"; below 60 "42 s".
std::string format_duration(double seconds);
// A rate with three digits: 0.123, 4.56, 78.9, 1234, 1.23 M.
std::string format_rate(double value);

}  // namespace lockstep
