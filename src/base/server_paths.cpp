#include "base/server_paths.h"

#include <algorithm>

namespace lockstep {
namespace {
bool begins_word(char before) { return std::string_view(" \t\n'\"`([{=,<>|").find(before) != std::string_view::npos; }

bool is_route(std::string_view path) {
  for (const std::string_view route : {"/v1/", "/api/", "/training/", "/inference/", "/hot_load/"})
    if (path.starts_with(route)) return true;
  return false;
}
}  // namespace

std::string without_server_paths(std::string_view message) {
  std::string text;
  for (std::size_t at = 0; at < message.size();) {
    if (message[at] != '/' || (at > 0 && !begins_word(message[at - 1]))) {
      text += message[at++];
      continue;
    }
    const char quote = at > 0 && std::string_view("'\"`").find(message[at - 1]) != std::string_view::npos ? message[at - 1] : 0;
    std::size_t end = quote ? message.find(quote, at) : std::string_view::npos;
    if (end == std::string_view::npos) end = std::min(message.find_first_of(" \t\n'\"`)]},;<>|", at), message.size());
    std::string_view path = message.substr(at, end - at);
    while (path.size() > 1 && (path.back() == ':' || path.back() == '.')) path.remove_suffix(1);  // of the sentence
    std::string_view whole = path;
    while (whole.size() > 1 && whole.back() == '/') whole.remove_suffix(1);
    const std::size_t last = whole.rfind('/');
    if (last == 0 || is_route(path)) text += path;
    else text.append("...").append(whole.substr(last));
    at += path.size();
  }
  return text;
}

}  // namespace lockstep
