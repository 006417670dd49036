// Reads a TOML file of teachers, one table [[teacher]] each: name, folder, adapter, checkpoint, domains, weight (runs/distillation/teachers.h,
// docs/distillation.md). Folders are relative to the file's own. Pure function of the file.
//   const std::vector<TeacherSettings> teachers = read_teacher_file("teachers.toml");
#pragma once
#include <filesystem>

#include "runs/distillation/teachers.h"

namespace lockstep {

// Errors: not_found; invalid_argument with the file, line and column, for what is no TOML, an unknown key (with the nearest), a value of another type.
std::vector<TeacherSettings> read_teacher_file(const std::filesystem::path& path);

}  // namespace lockstep
