# Writes OUTPUT: the files of FOLDER that end in .json as a function FUNCTION of namespace lockstep, declared in HEADER, that gives a span of
# ROW{name, text}; a name is the file's without .json.
#   cmake -DFOLDER=shapes/configs -DOUTPUT=configs_text.cpp -DHEADER=planning/x.h -DROW=Config -DFUNCTION=configs -P TextTable.cmake
file(GLOB files ${FOLDER}/*.json)
list(SORT files)
set(rows "")
foreach(path IN LISTS files)
  file(READ ${path} text)
  string(FIND "${text}" ")TEXT\"" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${path} holds what ends the literal")
  endif()
  get_filename_component(name ${path} NAME_WLE)
  string(APPEND rows "    {\"${name}\", R\"TEXT(${text})TEXT\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nnamespace lockstep {\n\nstd::span<const ${ROW}> ${FUNCTION}() {\n  static constexpr ${ROW} rows[] = {\n${rows}  };\n  return rows;\n}\n\n}  // namespace lockstep\n")
