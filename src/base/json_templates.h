// Explicit instantiations of nlohmann-json's largest templates, compiled once (json_templates.cpp) instead of in a hundred files. For the headers
// that the build precompiles (cmake/Folder.cmake) and their sources; nothing includes it by name.
#pragma once
#include <nlohmann/json.hpp>

#define LOCKSTEP_JSON_TEMPLATES(EXTERN)                               \
  EXTERN template class nlohmann::basic_json<>;                       \
  EXTERN template class nlohmann::basic_json<nlohmann::ordered_map>;  \
  EXTERN template class nlohmann::detail::serializer<nlohmann::json>; \
  EXTERN template class nlohmann::detail::serializer<nlohmann::ordered_json>;

LOCKSTEP_JSON_TEMPLATES(extern)
