// The files of the live page, compiled into the program (from web/ by folder.cmake). Plain values, constant.
//   const PageFile& index = page_files()[0];
#pragma once
#include <string_view>
#include <vector>

namespace lockstep {

struct PageFile {
  std::string_view name;  // "index.html", "assets/app.js", "assets/app.css"
  std::string_view content_type;
  std::string_view plain, gzip;
};
const std::vector<PageFile>& page_files();  // the three, in that order

}  // namespace lockstep
