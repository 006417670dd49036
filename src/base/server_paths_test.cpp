#include "base/server_paths.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ServerPaths, AClientIsToldAFilesNameAlone) {
  for (const auto& [message, told] : {
           std::pair("'/srv/lock step/x/model.safetensors' is truncated", "'.../model.safetensors' is truncated"),
           std::pair("the folder /srv/state/checkpoints/s_1 cannot be made: no space", "the folder .../s_1 cannot be made: no space"),
           std::pair("it broke (while reading /srv/a/config.json; while loading \"/srv/a/\")",
                     "it broke (while reading .../config.json; while loading \".../a\")"),
           std::pair("/srv/a", ".../a"),
           std::pair("cannot write /srv/a/b: denied", "cannot write .../b: denied"),
           std::pair("file=/srv/a/b,/srv/c/d", "file=.../b,.../d"),
           std::pair("an open quote '/srv/a/b", "an open quote '.../b"),
       })
    EXPECT_EQ(without_server_paths(message), told);
  for (const char* same :
       {"there is no /v1/modelz; known are /v1/models, /healthz, /api/v1/create_model", "there is no checkpoint 'tinker://s-1:train:0/weights/x'",
        "accounts/local/models/x", "1/2 of it", "https://example.com/a/b", "a relative state/path/x", "", "/", "'/'", "//"})
    EXPECT_EQ(without_server_paths(same).find("..."), std::string::npos) << same;
}

TEST(ServerPaths, AnyTextEndsAndIsNotLonger) {
  const std::string pieces = "/'\". :a";
  for (unsigned n = 0; n < 7u * 7 * 7 * 7 * 7; ++n) {
    std::string text;
    for (unsigned rest = n, i = 0; i < 5; ++i, rest /= 7) text += pieces[rest % 7];
    EXPECT_LE(without_server_paths(text).size(), text.size() + 6) << text;
  }
}

}  // namespace
}  // namespace lockstep
