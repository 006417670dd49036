// The settings of Metaspace, shared by a pre-tokenizer and a decoder: the character that stands for a space, and when a
// text gets one in front. A plain value.
//   const Metaspace metaspace = Metaspace::read(object); metaspace.replacement == "\u2581";
#pragma once
#include <string>

#include "text/tokenizer/json_object.h"

namespace lockstep {

struct Metaspace {
  enum class Prepend { first, never, always };
  std::string replacement;  // one character
  Prepend prepend = Prepend::always;
  bool split = true;

  // Reads the keys of an object of that type, "type" excepted.
  static Metaspace read(JsonObject& object);
};

}  // namespace lockstep
