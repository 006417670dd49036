// Formats the head of an HTTP response: status line, headers, empty line. Knows no socket. Any thread. Internal to http/.
//   text = answer_head({.status = 200, .content_type = "application/json", .content_length = body.size()}, headers, {});
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "api/exchange.h"

namespace lockstep {

struct ResponseHead {
  int status = 200;
  std::string_view content_type;
  std::optional<std::size_t> content_length;
  bool chunked = false, keep_alive = true, http10 = false;
  std::string_view request_id = {};
};
// A header of `headers` or `more` whose name or value would end its line is left out.
std::string answer_head(const ResponseHead& head, const HeaderList& headers, const HeaderList& more);

}  // namespace lockstep
