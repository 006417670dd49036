cd /work/main
F="-DFMT_SHARED -I/work/main/src -O0 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -std=c++20 -Wno-subobject-linkage -mfma -mavx2 -mf16c -fsyntax-only"
# all the changed sources as one unit each folder
gen() { out=/tmp/syn24_$1.cpp; : > $out; shift; for f in "$@"; do echo "#include \"/work/main/src/$f\"" >> $out; done; echo $out; }
chrt -i 0 g++ $F $(gen parallel parallel/{layout,ranks,exchange_counts,thread_ranks,process_ranks,counted_rank}.cpp) 2>&1 | grep -E "error|warning" -A4 | head -30
echo parallel; date
chrt -i 0 g++ $F $(gen model model/{batch,context_pieces}.cpp model/operations/{context_rows,attention,index_select}.cpp) 2>&1 | grep -E "error|warning" -A4 | head -40
echo model; date
chrt -i 0 g++ $F $(gen train train/{rank_record,rank_rows,rank_trainer,micro_batch,forward_pass,forward_stage,forward_heads,loss_columns,base_rank,router_loads}.cpp planning/step_plan.cpp planning/step_time.cpp) 2>&1 | grep -E "error|warning" -A6 | head -60
echo train; date
chrt -i 0 g++ $F $(gen test train/context_ranks_test.cpp) 2>&1 | grep -E "error|warning" -A6 | head -40
date
