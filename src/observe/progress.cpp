#include "observe/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace lockstep {
namespace {
constexpr double kRedrawSeconds = 0.1;
constexpr int kBarWidth = 20;

double steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void write_stderr(const std::string& text) {
  // Failed writes are ignored: they must not stop the work.
  while (write(STDERR_FILENO, text.data(), text.size()) < 0 && errno == EINTR) {
  }
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_rate(double value) {
  if (value >= 999'500'000) return fmt::format("{:.2f} G", value * 1e-9);
  if (value >= 999'500) return fmt::format("{:.2f} M", value * 1e-6);
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  if (value >= 0.9995) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

Progress::Progress(Options options) : options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  if (!options_.write) options_.write = write_stderr;
  terminal_ = options_.terminal < 0 ? isatty(STDERR_FILENO) == 1 : options_.terminal == 1;
  done_ = options_.already_done;
  begin_ = last_drawn_ = options_.clock();
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // a destructor may run while the work's own error is on its way
  }
}

void Progress::advance(std::int64_t steps, double units) {
  std::lock_guard lock(mutex_);
  done_ += steps;
  units_ += units;
  draw_if_due(options_.clock());
}

void Progress::note(std::string text) {
  std::lock_guard lock(mutex_);
  note_ = std::move(text);
  draw_if_due(options_.clock());
}

void Progress::draw_if_due(double now) {
  if (options_.quiet || finished_) return;
  if (now - last_drawn_ < (terminal_ ? kRedrawSeconds : options_.plain_seconds)) return;
  last_drawn_ = now;
  emit(line(now));
}

std::string Progress::line(double now) const {
  const double seconds = now - begin_;
  const std::int64_t fresh = done_ - options_.already_done;
  std::string text = options_.label;
  if (options_.total > 0) {
    if (terminal_) {
      const auto filled = static_cast<int>(std::clamp<std::int64_t>(done_ * kBarWidth / options_.total, 0, kBarWidth));
      text += fmt::format("  [{:=<{}}{:<{}}]", "", filled, filled < kBarWidth ? ">" : "", kBarWidth - filled);
    }
    text += fmt::format("  {}/{}", done_, options_.total);
  } else {
    text += fmt::format("  {}", done_);
  }
  if (seconds > 0 && units_ > 0) text += fmt::format("  {} {}/s", format_rate(units_ / seconds), options_.unit);
  if (finished_) {
    text += fmt::format("  in {}", format_duration(seconds));
  } else if (options_.total > done_ && fresh > 0) {
    const double steps_left = static_cast<double>(options_.total - done_);
    text += fmt::format("  {} left", format_duration(seconds / static_cast<double>(fresh) * steps_left));
  }
  if (!note_.empty()) text += "  " + note_;
  return text;
}

void Progress::emit(const std::string& text) const {
  if (!terminal_) return options_.write(text + "\n");
  // A line longer than the terminal would wrap, and could not be redrawn.
  std::string cut = text.substr(0, terminal_width() - 1);
  options_.write("\r\033[K" + cut + (finished_ ? "\n" : ""));
}

void Progress::finish() {
  std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (!options_.quiet) emit(line(options_.clock()));
}

}  // namespace lockstep
