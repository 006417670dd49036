#include "text/tokenizer/metaspace.h"

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {

Metaspace Metaspace::read(JsonObject& object) {
  Metaspace result;
  result.replacement = object.text("replacement");
  if (result.replacement.empty() || utf8_front(result.replacement).bytes != result.replacement.size()) {
    fail(ErrorCode::corrupt_file, "{} is '{}', allowed is one character", object.path("replacement"), utf8_excerpt(result.replacement));
  }
  object.any("str_rep");
  const bool prefix = object.flag("add_prefix_space", true);
  const std::string scheme = object.has("prepend_scheme") ? object.text("prepend_scheme") : "always";
  object.any("prepend_scheme");
  if (scheme == "first") result.prepend = Prepend::first;
  else if (scheme == "never") result.prepend = Prepend::never;
  else if (scheme != "always") {
    fail(ErrorCode::unsupported, "{} is '{}', allowed is first, never, always", object.path("prepend_scheme"), utf8_excerpt(scheme));
  }
  if (!prefix && result.prepend != Prepend::never) {
    fail(ErrorCode::corrupt_file, "{} is false and {} is '{}', allowed beside false is never", object.path("add_prefix_space"), object.path("prepend_scheme"),
         scheme);
  }
  result.split = object.flag("split", true);
  return result;
}

}  // namespace lockstep
