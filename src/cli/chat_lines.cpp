#include "cli/chat_lines.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/signals.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostLineBytes = 1 << 20;
constexpr int kSignalMilliseconds = 50;
constexpr int kRememberedLines = 1000;

// Waits for a byte of stdin. Not a read that waits: a signal just before it, or taken by another thread, would be seen only after it.
// False: a signal came.
bool wait_for_input() {
  while (true) {
    if (interrupted()) return false;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, kSignalMilliseconds) > 0) return true;
  }
}

class PipedLines : public ChatLines {
 public:
  Got next(std::string& line) override {
    while (true) {
      if (const std::size_t at = held_.find('\n'); at != std::string::npos) {
        line = held_.substr(0, at);
        held_.erase(0, at + 1);
        if (line.ends_with('\r')) line.pop_back();
        return Got::line;
      }
      if (held_.size() > kMostLineBytes) fail(ErrorCode::invalid_argument, "a line of the talk is above {} bytes", kMostLineBytes);
      if (!wait_for_input()) return Got::interrupt;
      char bytes[4096];
      const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
      if (got > 0) {
        held_.append(bytes, static_cast<std::size_t>(got));
      } else if (got == 0) {
        line = std::exchange(held_, {});
        return line.empty() ? Got::end : Got::line;
      } else if (errno != EINTR && errno != EAGAIN) {
        fail(ErrorCode::io, "reading stdin: {}", std::strerror(errno));
      }
    }
  }

 private:
  std::string held_;
};

class TerminalLines : public ChatLines {
 public:
  explicit TerminalLines(const std::string& prompt) : prompt_(prompt) {
    // Characters beyond ASCII are typed and shown as such.
    if (!std::setlocale(LC_CTYPE, "") || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    changeable_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    edit_ = el_init("lockstep", stdin, stdout, stderr);
    history_ = history_init();
    if (!edit_ || !history_) fail(ErrorCode::io, "the terminal cannot be edited; lines from a pipe can be read");
    HistEvent event;
    history(history_, &event, H_SETSIZE, kRememberedLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(
        edit_, EL_PROMPT, +[](EditLine* edit) {
          TerminalLines* self = nullptr;
          el_get(edit, EL_CLIENTDATA, &self);
          return self->prompt_.data();
        });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, read_character);
    el_set(edit_, EL_SIGNAL, 0);
    // What is typed during an answer waits as it was typed, and is shown at the next prompt: a terminal that gathers lines itself would keep
    // Ctrl-D as an end that nobody reads later, and one that shows them would write into the answer. (-x: the modes outside of el_gets.)
    el_set(edit_, EL_SETTY, "-x", "-icanon", nullptr);
    el_set(edit_, EL_SETTY, "-x", "-echo", nullptr);
  }
  ~TerminalLines() override {
    if (history_) history_end(history_);
    if (edit_) el_end(edit_);
    if (changeable_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  Got next(std::string& line) override {
    interrupted_ = false;
    int length = 0;
    const char* text = el_gets(edit_, &length);
    if (interrupted_) {
      el_reset(edit_);
      return Got::interrupt;
    }
    if (!text || length <= 0) return Got::end;
    line.assign(text, static_cast<std::size_t>(length));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    if (line.size() > kMostLineBytes) fail(ErrorCode::invalid_argument, "a line of the talk is above {} bytes", kMostLineBytes);
    if (line.find_first_not_of(" \t") != std::string::npos) {
      HistEvent event;
      history(history_, &event, H_ENTER, line.c_str());
    }
    return Got::line;
  }

 private:
  // The next character: 1, or 0 at the end, or -1 when a signal came.
  static int read_character(EditLine* edit, wchar_t* character) {
    TerminalLines* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    std::mbstate_t state{};
    for (int bytes = 0; bytes < 8;) {
      if (!wait_for_input()) {
        self->interrupted_ = true;
        return -1;
      }
      char byte = 0;
      const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
      if (got == 0) return 0;
      if (got < 0) {
        if (errno == EINTR || errno == EAGAIN) continue;
        return -1;
      }
      ++bytes;
      const std::size_t made = std::mbrtowc(character, &byte, 1, &state);
      if (made == static_cast<std::size_t>(-2)) continue;  // the rest of it comes
      if (made != static_cast<std::size_t>(-1)) return 1;
      state = {};
      bytes = 0;  // no character: not taken
    }
    return -1;
  }

  std::string prompt_;
  termios before_{};
  bool changeable_ = false;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  bool interrupted_ = false;
};
}  // namespace

std::unique_ptr<ChatLines> piped_lines() { return std::make_unique<PipedLines>(); }
std::unique_ptr<ChatLines> terminal_lines(const std::string& prompt) { return std::make_unique<TerminalLines>(prompt); }

}  // namespace lockstep
