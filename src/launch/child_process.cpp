#include "launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

extern char** environ;

namespace lockstep {

namespace {
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This program's environment with `more`, which stands for variables of the same name.
std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> all = more;
  for (char** at = environ; *at; ++at) {
    const std::string_view own(*at);
    const std::string_view name = own.substr(0, own.find('=') + 1);
    bool replaced = false;
    for (const std::string& other : more) replaced = replaced || other.starts_with(name);
    if (!replaced) all.emplace_back(own);
  }
  return all;
}
}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& words, const ChildSettings& settings) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(ErrorCode::io, "cannot start '{}': {}", words.at(0), std::strerror(errno));
  errors_ = ends[0];
  ::fcntl(errors_, F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!settings.stdout_is_ours) posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> own_words = words, environment = environment_with(settings.environment);
  const int refused = ::posix_spawnp(&pid_, own_words[0].c_str(), &files, &attributes, pointers_to(own_words).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  if (refused == 0) return;
  ::close(errors_);
  fail(refused == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot start '{}': {}", words[0], std::strerror(refused));
}

ChildProcess::~ChildProcess() {
  if (!ended()) {
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(errors_);
}

std::vector<std::string> ChildProcess::lines(int milliseconds) {
  std::vector<std::string> found;
  const bool over = ended().has_value();  // before reading: what it wrote is in the pipe by then
  pollfd wanted{closed_ ? -1 : errors_, POLLIN, 0};
  if (::poll(&wanted, 1, over ? 0 : milliseconds) == 1) {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::read(errors_, bytes, sizeof(bytes))) > 0) unread_.append(bytes, static_cast<std::size_t>(got));
    closed_ = got == 0;
  }
  for (std::size_t end; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1)) found.push_back(unread_.substr(0, end));
  if (over && !unread_.empty()) found.push_back(std::move(unread_)), unread_.clear();
  return found;
}

std::optional<int> ChildProcess::ended() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return status_;
}

void ChildProcess::signal(int number) {
  if (!ended()) ::kill(pid_, number);
}

}  // namespace lockstep
