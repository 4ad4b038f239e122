# cmake -DFILE=a.bin -DSYMBOL=kName -DOUT=a.cc [-DNAMESPACE=syncline::ctl]
# -P embed_file.cmake: writes the bytes of a file as `extern const char SYMBOL[]`
# and `extern const unsigned long SYMBOL##Size` in that namespace.
if(NOT NAMESPACE)
  set(NAMESPACE syncline::ctl)
endif()
file(READ ${FILE} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
string(REGEX REPLACE "(('....',){16})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT}
  "namespace ${NAMESPACE} {\n"
  "extern const char ${SYMBOL}[];\n"
  "extern const unsigned long ${SYMBOL}Size;\n"
  "const char ${SYMBOL}[] = {\n${bytes}};\n"
  "const unsigned long ${SYMBOL}Size = ${size};\n"
  "}  // namespace ${NAMESPACE}\n")
