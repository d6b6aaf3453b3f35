# Processor time of a token and the memory of the caches against the position in the text.
set terminal svg size 900,400 font "sans,12" background rgb "white"
set output "plot.svg"
set datafile separator tab
set logscale x
set grid
set xtics ("4k" 4096, "8k" 8192, "16k" 16384, "32k" 32768, "64k" 65536)
set xrange [3700:73000]
set xlabel "tokens of text so far"
names = "window plsh original"
titles = "'window of 512' 'plsh, 20 samples' 'its own attention'"
line(n) = sprintf("< awk -F'\t' '$1 == \"%s\"' rows.tsv | sort -t'\t' -k2,2n", n)
set multiplot layout 1,2
set key top right samplen 1
set title "milliseconds of one core per token"
set yrange [0:*]
plot for [i = 1:3] line(word(names, i)) using 2:4 with linespoints lw 2 pt 7 ps 0.5 lc i title word(titles, i)
unset key
set title "caches, MB"
plot for [i = 1:3] line(word(names, i)) using 2:($5 / 1e6) with linespoints lw 2 pt 7 ps 0.5 lc i title word(titles, i)
unset multiplot
