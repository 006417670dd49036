# Writes OUTPUT: the file INPUT as a function FUNCTION of namespace lockstep that gives its text, declared in HEADER.
#   cmake -DINPUT=catalog.toml -DOUTPUT=catalog_text.cpp -DHEADER=planning/x.h -DFUNCTION=text -P TextBytes.cmake
file(READ ${INPUT} text)
string(FIND "${text}" ")TEXT\"" at)
if(NOT at EQUAL -1)
  message(FATAL_ERROR "${INPUT} holds what ends the literal")
endif()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nnamespace lockstep {\n\nstd::string_view ${FUNCTION}() { return R\"TEXT(${text})TEXT\"; }\n\n}  // namespace lockstep\n")
