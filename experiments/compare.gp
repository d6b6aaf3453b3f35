# Perplexity against the context, a curve per attention. Usage: gnuplot -c compare.gp FOLDER CURVES
set terminal svg size 800,460 font "sans,13" background rgb "white"
set output ARG1."/plot.svg"
set logscale x 2
set format x "%.0f"
set xlabel "context length, tokens"
set ylabel "perplexity of the same tokens"
set grid lc rgb "#cccccc"
set key outside right center reverse Left samplen 2
set datafile separator tab
set offsets graph 0.05, graph 0.05, graph 0.03, graph 0.03
plot for [i=0:int(ARG2) - 1] ARG1."/plot.dat" index i using 1:2:3 with yerrorlines lw 2 pt 7 ps 0.5 title columnheader(1)
