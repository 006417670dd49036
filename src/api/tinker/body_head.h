// Finds one field of a training body without decoding the rest, so that the model it is for is known before its data takes memory. Reads only as far
// as the field; errors in the rest are left to the decoder. Pure functions.
//   TextSource source(body); if (const auto model = json_field(source, "model_id")) service.models().find(owner, *model);
#pragma once
#include <optional>
#include <string>

#include "base/byte_source.h"

namespace lockstep {

// The text (at most 1,000 bytes) of a field of the outermost object; empty: there is none.
std::optional<std::string> json_field(ByteSource& source, std::string_view name);
// The same for model_id of a ForwardBackwardRequest in protobuf.
std::optional<std::string> proto_model(ByteSource& source);

}  // namespace lockstep
